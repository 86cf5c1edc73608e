"""Exact answers that are proved: against float64 brute force, on ordinary and on adversarial layers."""

from __future__ import annotations

import json

import numpy as np
import pytest
import shortlist
from shortlist.bundle.manifest import read_manifest
from shortlist.bundle.writer import seal
from shortlist.core.queries import TopKQuery
from shortlist.errors import BadInput, BundleError
from shortlist.evaluation.canary import check_canary
from shortlist.kernels import proofs
from shortlist.kernels.proofs import CompiledProofs
from shortlist.plans import graph_proofs, proof
from shortlist.server.scheduling.slices import Slice
from shortlist.server.scheduling.tasks import make_task
from shortlist_exporter.inputs.sources import Dense

from tests.support.layers import RunningServer, logits_of, logprobs_of, make_dense
from tests.support.proofs import CLASSES, DIM, check_best, proved, rows

ROUNDING = 1e-4  # nats, of float32 logits and sums


pytestmark = [pytest.mark.usefixtures("prove_small_layers"), pytest.mark.slow]


def test_few_classes_are_scored_and_the_answer_is_dense(proved_head):
    top, dense = proved_head.topk(rows, 5, exact=True), proved_head.dense.topk(rows, 5, shortlist.head.UNRESTRICTED)
    assert top.normalizer == "bounded"
    assert (top.scored < CLASSES).all()
    np.testing.assert_array_equal(top.ids, dense.ids)
    check_best(top, logits_of(make_dense(CLASSES, DIM), rows), 5)


def test_logprobs_are_within_the_stated_bound(proved_head):
    bound = proved_head.manifest.certificate.logprob_bound
    assert 0 < bound < 1
    top = proved_head.topk(rows, 5, exact=True)
    truth = np.take_along_axis(logprobs_of(make_dense(CLASSES, DIM), rows), top.ids, axis=1)
    assert np.abs(top.logprobs - truth).max() <= bound


def test_a_row_that_could_be_off_by_more_is_answered_by_dense(proved_head):
    proved_head.certified.tolerance = 0.0
    top = proved_head.topk(rows, 5, exact=True)
    assert top.scored.tolist() == [CLASSES] * len(rows)
    truth = np.take_along_axis(logprobs_of(make_dense(CLASSES, DIM), rows), top.ids, axis=1)
    np.testing.assert_allclose(top.logprobs, truth, atol=ROUNDING)


def test_too_many_classes_within_the_bounds_go_to_dense(tmp_path):
    dense = Dense(np.tile(make_dense(1, DIM).weight, (CLASSES, 1)))
    top = proved(tmp_path, dense).topk(rows, 5, exact=True)
    assert top.scored.tolist() == [CLASSES] * len(rows)
    assert top.ids.tolist() == [[0, 1, 2, 3, 4]] * len(rows), "equal scores by lower id"


def test_an_export_that_has_no_bound_yet_leaves_undecided_rows_to_dense_too(tmp_path):
    head = proved(tmp_path, Dense(np.tile(make_dense(1, DIM).weight, (CLASSES, 1))))
    head.certified.tolerance = np.inf
    for top in (head.topk(rows, 5, exact=True), head.topk(rows[:1], 5, exact=True)):
        assert top.scored.tolist() == [CLASSES] * len(top.ids)
        assert top.ids.tolist() == [[0, 1, 2, 3, 4]] * len(top.ids)
        np.testing.assert_allclose(top.logprobs, -np.log(CLASSES), rtol=1e-6)


def test_more_candidates_are_rescored_where_the_first_do_not_prove_it(tmp_path, monkeypatch):
    monkeypatch.setattr(proofs, "ANCHOR_CLASSES", 5)
    dense = make_dense(6000, DIM)
    top = proved(tmp_path, dense).topk(rows, 5, exact=True)
    assert len(set(top.scored.tolist())) > 1
    check_best(top, logits_of(dense, rows), 5)


def test_a_row_does_not_depend_on_its_neighbours(proved_head):
    batch = rows.copy()
    batch[1:] *= 1000
    alone, beside = proved_head.topk(batch[:1], 7, exact=True), proved_head.topk(batch, 7, exact=True)
    np.testing.assert_array_equal(alone.ids[0], beside.ids[0])
    np.testing.assert_allclose(alone.logprobs[0], beside.logprobs[0], atol=1e-5)
    assert alone.scored[0] == beside.scored[0]


def test_dense_answers_large_k_and_many_rows(proved_head):
    assert proved_head.topk(rows, 50, exact=True).normalizer == "exact"
    proved_head.certified.crossover = 8
    assert proved_head.topk(rows[:7], 5, exact=True).normalizer == "bounded"
    assert proved_head.topk(rows[:8], 5, exact=True).normalizer == "exact"


def test_no_rows(proved_head):
    top = proved_head.topk(np.empty((0, DIM), np.float32), 3, exact=True)
    assert (top.ids.shape, top.logprobs.shape, top.scored.shape) == ((0, 3), (0, 3), (0,))


@pytest.mark.parametrize("k", [1, 5, 16])
def test_exact_calls_agree(proved_head, k):
    """Whatever k and lists are: `topk` and `logprobs` take the same normaliser."""
    best = proved_head.topk(rows, k, exact=True)
    assert (best.scored < CLASSES).all()
    np.testing.assert_allclose(proved_head.logprobs(rows, best.ids, exact=True), best.logprobs, atol=ROUNDING)
    later = proved_head.topk(rows, 2, exact=True, ban=best.ids)
    np.testing.assert_allclose(proved_head.logprobs(rows, later.ids, exact=True), later.logprobs, atol=ROUNDING)


@pytest.mark.parametrize("with_loops", [True, False])
def test_exact_calls_agree_where_most_of_the_mass_is_asked_for(tmp_path, monkeypatch, with_loops):
    """The classes asked for may add up to more than estimates said: then dense answers, `topk` and `logprobs` alike."""
    for module in (proofs, proof, graph_proofs):
        monkeypatch.setattr(module, "ANCHOR_CLASSES", 2)
    if not with_loops:
        monkeypatch.setattr(CompiledProofs, "open", lambda *_: None)
    head = proved(tmp_path, make_dense(CLASSES, DIM))
    proved_rows = 0
    for k in (1, 4, 12, 30):
        best = head.topk(rows, k, exact=True)
        for top in (best, head.topk(rows, k, ban=best.ids, exact=True)):
            off = np.abs(head.logprobs(rows, top.ids, exact=True) - top.logprobs).max(axis=1)
            is_proved = top.scored < CLASSES
            assert off[is_proved].max(initial=0) < 3e-5
            assert off.max() <= head.manifest.certificate.logprob_bound
            assert (np.exp(top.logprobs.astype(np.float64)).sum(axis=1) < 1 + 1e-5).all()
            proved_rows += np.count_nonzero(is_proved)
    assert proved_rows > 3 * len(rows)


def test_given_classes_are_scored_within_the_bound(proved_head):
    truth = logprobs_of(make_dense(CLASSES, DIM), rows)[:, [3, 299]]
    logprobs = proved_head.logprobs(rows, np.tile([3, 299], (64, 1)), exact=True)
    assert np.abs(logprobs - truth).max() <= proved_head.manifest.certificate.logprob_bound


def test_given_classes_go_to_dense_where_they_could_be_off_by_more(proved_head):
    proved_head.certified.tolerance = 0.0
    truth = logprobs_of(make_dense(CLASSES, DIM), rows)[:, [3, 299]]
    logprobs = proved_head.logprobs(rows, np.tile([3, 299], (64, 1)), exact=True)
    np.testing.assert_allclose(logprobs, truth, atol=ROUNDING)


def test_lists_do_not_change_the_normaliser(proved_head):
    best = proved_head.topk(rows, 5, exact=True)
    top = proved_head.topk(rows, 2, exact=True, ban=best.ids[:, :3])
    np.testing.assert_array_equal(top.ids, best.ids[:, 3:])
    np.testing.assert_allclose(
        top.logprobs, best.logprobs[:, 3:], atol=2 * proved_head.manifest.certificate.logprob_bound
    )


def test_scores_that_overflow_are_refused(proved_head):
    with pytest.raises(BadInput, match="overflow float32"):
        proved_head.topk(np.full((1, DIM), 3e38), 1, exact=True)


def test_the_manifest_says_what_is_promised(proved_head):
    content = json.loads((proved_head.folder / "manifest.json").read_text())["certificate"]
    assert (content["rows"], content["dense_share"], content["dense_crossover"]) == (40, 0.0, None)
    assert 5 <= content["rescored"] <= 100


def test_the_canary_refuses_bounds_that_do_not_hold(proved_head):
    check_canary(proved_head, shortlist.bundle.Bundle(proved_head.folder))
    rows_of = proved_head.folder / "graphs" / "certificate_rows.bin"
    rows_of.chmod(0o644)
    rows_of.write_bytes(rows_of.read_bytes()[::-1])
    (proved_head.folder / "manifest.json").unlink()
    seal(proved_head.folder, proved_head.manifest)
    assert read_manifest(proved_head.folder).certificate
    with pytest.raises(BundleError, match="a logit is outside its bounds"):
        check_canary(shortlist.load(proved_head.folder), shortlist.bundle.Bundle(proved_head.folder))


def test_answers_over_http_say_that_they_are_bounded(tmp_path, proved_head):
    best = proved_head.topk(rows[:9], 3, exact=True)
    with RunningServer(proved_head.folder.parent.parent) as server, shortlist.Client(server.url) as client:
        top = client.topk("lm", rows[:9], 3, exact=True)
        asked = {"model": "lm", "contexts": rows[:9].tolist(), "k": 3, "exact": True}
        answer = server.http.post("/v1/topk", json=asked).json()
        promise = server.http.get("/v1/models/lm").json()["certificate"]
        scored = {"model": "lm", "contexts": rows[:9].tolist(), "ids": best.ids.tolist(), "exact": True}
        score = server.http.post("/v1/score", json=scored).json()
        metrics = server.http.get("/metrics").text
    assert (top.normalizer, answer["normalizer"]) == ("bounded", "bounded")
    np.testing.assert_array_equal(top.ids, best.ids)
    np.testing.assert_array_equal(answer["ids"], best.ids)
    np.testing.assert_array_equal(answer["scored"], best.scored)
    assert promise["logprob_bound"] == proved_head.manifest.certificate.logprob_bound
    assert score["normalizer"] == "bounded"
    np.testing.assert_allclose(score["logprobs"], answer["logprobs"], atol=ROUNDING)
    assert 'shortlist_rows_total{answered="proved",model="lm",version="1"} 18.0' in metrics
    assert 'shortlist_rescored_classes_count{model="lm",version="1"} 18.0' in metrics
    assert f'shortlist_rescored_classes_sum{{model="lm",version="1"}} {2.0 * best.scored.sum()}' in metrics


def test_requests_of_one_k_alone_are_computed_together(proved_head):
    works = [make_task(proved_head, TopKQuery(rows[i : i + 4], k, exact=True)) for i, k in ((0, 3), (4, 3), (8, 5))]
    groups = [Slice(work, 0, 4).group for work in works]
    assert groups[0] == groups[1] != groups[2]
    parts = works[0].compute_slices([Slice(works[0], 0, 4), Slice(works[1], 0, 4)])
    for work, part in zip(works, parts, strict=False):
        alone = work.compute()
        np.testing.assert_array_equal(part.ids, alone.ids)
        np.testing.assert_array_equal(part.scored, alone.scored)
