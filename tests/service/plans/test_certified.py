"""Exact answers that are proved: against float64 brute force, on ordinary and on adversarial layers."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
import shortlist
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper
from shortlist.bundle.manifest import read_manifest
from shortlist.bundle.reader import CERTIFICATE_FILE, Bundle
from shortlist.bundle.writer import seal
from shortlist.core import rounding
from shortlist.core.queries import TopKQuery
from shortlist.errors import BadInput, BundleError
from shortlist.evaluation.canary import check_canary
from shortlist.kernels import proofs
from shortlist.kernels.proofs import CompiledProofs
from shortlist.plans import graph_proofs, proof
from shortlist.runtime.session import Graph
from shortlist.server.scheduling.tasks import Slice, make_task
from shortlist_exporter.inputs.sources import Contexts, Dense

from tests.support.layers import RunningServer, logits_of, logprobs_of, make_dense
from tests.support.proofs import CLASSES, DIM, graph_of, proved, rows

TIE = 1e-5  # of the largest logit
ROUNDING = 1e-4  # nats, of float32 logits and sums


pytestmark = [pytest.mark.usefixtures("prove_small_layers"), pytest.mark.slow]


def agrees(top, logits, k):
    """Whether rank by rank the classes' true logits are the largest legal ones, ties aside."""
    largest = np.abs(np.where(np.isfinite(logits), logits, 0)).max(axis=1, keepdims=True)
    best = -np.sort(-logits, axis=1)[:, :k]
    known = top.ids >= 0
    assert (known == np.isfinite(best)).all(), "as many as are legal"
    found = np.take_along_axis(logits, np.maximum(top.ids, 0), axis=1)
    most = (TIE * largest + 1e-30).repeat(k, axis=1)
    assert (np.abs(found[known] - best[known]) <= most[known]).all()
    for ids in top.ids:
        assert len(set(ids[ids >= 0].tolist())) == np.count_nonzero(ids >= 0)


def holds(head, dense, contexts):
    """Whether every true logit lies within its bounds, in float64: those of the graph, and of compiled loops."""
    certificate = Bundle(head.folder).tensors(CERTIFICATE_FILE)
    coarse, fine = certificate["four_bit_scale"], certificate["scale"]
    common, mean = (np.linalg.norm(certificate[name].astype(np.float64)) for name in ("common", "mean"))
    sizes = np.linalg.norm(contexts.astype(np.float64), axis=1, keepdims=True) + 1
    floor = head.certified.rounding.floor + 8 * 2.0**-24 * common * (mean + 1) * sizes
    logits = logits_of(dense, contexts)
    graph_estimates, spreads = graph_of(head)(context=contexts)
    parts = [(graph_estimates, fine, spreads)]
    is_compiled = isinstance(head.certified.proofs, CompiledProofs)  # tiny layers have their weights in the graphs
    if is_compiled:
        estimates, bounds = head.certified.proofs.bound(contexts)
        parts += [(estimates[:, 0], coarse, bounds[:, :1]), (estimates[:, 1], fine, bounds[:, 1:2])]
    for estimate, scale, reach in parts:
        sound = np.isfinite(logits) & np.isfinite(reach)
        with np.errstate(invalid="ignore"):
            off = np.abs(estimate - logits) - floor
            assert (off <= scale.astype(np.float64) * reach)[sound].all()
    if not is_compiled:
        return
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        off = np.maximum(np.abs(estimates[:, 0] - logits) - floor, 0) / coarse
        squares = np.where(np.isfinite(logits) & (coarse > 0), off, 0) ** 2
        assert (np.sqrt(squares.sum(axis=1)) <= bounds[:, 2])[np.isfinite(bounds[:, 2])].all()


def test_few_classes_are_scored_and_the_answer_is_dense(proved_head):
    top, dense = proved_head.topk(rows, 5, exact=True), proved_head.dense.topk(rows, 5, shortlist.head.UNRESTRICTED)
    assert top.normalizer == "bounded"
    assert (top.scored < CLASSES).all()
    np.testing.assert_array_equal(top.ids, dense.ids)
    agrees(top, logits_of(make_dense(CLASSES, DIM), rows), 5)


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


def test_more_candidates_are_rescored_where_the_first_do_not_prove_it(tmp_path, monkeypatch):
    monkeypatch.setattr(proofs, "ANCHOR_CLASSES", 5)
    dense = make_dense(6000, DIM)
    top = proved(tmp_path, dense).topk(rows, 5, exact=True)
    assert len(set(top.scored.tolist())) > 1
    agrees(top, logits_of(dense, rows), 5)


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


def test_bias_scale_cap_and_padding(tmp_path):
    dense = make_dense(
        CLASSES, DIM,
        bias=np.random.default_rng(3).standard_normal(CLASSES).astype(np.float32),
        logit_scale=0.5,
        soft_cap=4.0,
        padded=np.array([0, 1, 599]),
    )  # fmt: skip
    head = proved(tmp_path, dense)
    holds(head, dense, rows)
    for lists in ({}, {"ban": [5, 6]}, {"allow": [0, 7, 8, 9]}):
        logits = logits_of(dense, rows)
        legal = np.isin(np.arange(CLASSES), lists.get("allow", np.arange(CLASSES)))
        legal[lists.get("ban", [])] = False
        logits[:, ~legal] = -np.inf
        agrees(head.topk(rows, 5, exact=True, **lists), logits, 5)


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


KINDS = {
    "plain": lambda random, v, d: random.standard_normal((v, d)),
    "equal rows": lambda random, v, d: np.tile(random.standard_normal((1, d)), (v, 1)),
    "nearly equal rows": lambda random, v, d: random.standard_normal((1, d)) + 1e-6 * random.standard_normal((v, d)),
    "each row twice": lambda random, v, d: np.repeat(random.standard_normal((v, d)), 2, axis=0)[:v],
    "one huge row": lambda random, v, d: (
        random.standard_normal((v, d)) * np.where(np.arange(v) == v // 2, 1e6, 1)[:, None]
    ),
    "norms of all sizes": lambda random, v, d: random.standard_normal((v, d)) * np.geomspace(1e-12, 1e6, v)[:, None],
    "constant rows": lambda random, v, d: np.tile(random.standard_normal((v, 1)), (1, d)),
    "zero rows": lambda random, v, d: random.standard_normal((v, d)) * (random.random((v, 1)) < 0.3),
    "zeros": lambda random, v, d: np.zeros((v, d)),
    "whole numbers": lambda random, v, d: random.integers(-3, 4, (v, d)),
    "one column": lambda random, v, d: random.standard_normal((v, d)) * (np.arange(d) == 0),
    "tiny": lambda random, v, d: random.standard_normal((v, d)) * 1e-25,
}
SIZES = {"plain": 1.0, "small": 1e-6, "large": 1e6, "tiny": 1e-30, "zero": 0.0}


@given(
    st.sampled_from(sorted(KINDS)), st.sampled_from(sorted(SIZES)), st.integers(1, 300), st.integers(1, 40),
    st.integers(1, 12), st.booleans(), st.sampled_from([None, 3.0]), st.integers(0, 2**32 - 1), st.data(),
)  # fmt: skip
def test_any_layer(tmp_path_factory, kind, size, classes, dim, k, bias, cap, seed, data):
    random = np.random.default_rng(seed)
    weight = KINDS[kind](random, classes, dim).astype(np.float32)
    biases = random.standard_normal(classes).astype(np.float32) if bias else None
    padded = np.flatnonzero(random.random(classes - 1) < 0.1) if cap else np.empty(0, np.int64)
    dense = Dense(weight, biases, soft_cap=cap, padded=padded)
    spread = random.standard_normal((8, dim)) * np.geomspace(1, 1e-3, dim) + 3 * random.standard_normal(dim)
    fit = Contexts(np.vstack([spread, spread]).astype(np.float32))
    contexts = (spread * SIZES[size]).astype(np.float32)
    contexts[0] = weight[random.integers(classes)]  # a context that is a row
    head = proved(tmp_path_factory.mktemp("any"), dense, fit)
    k = min(k, head.manifest.max_k)
    ban = data.draw(st.none() | st.lists(st.integers(0, classes - 1), max_size=classes))
    holds(head, dense, contexts)
    logits = logits_of(dense, contexts)
    top = head.topk(contexts, k, ban=ban, exact=True)
    proved_rows = top.scored < classes
    truth = np.take_along_axis(logprobs_of(dense, contexts), np.maximum(top.ids, 0), axis=1)
    size_of = np.abs(np.where(np.isfinite(logits), logits, 0)).max()
    error = np.where(top.ids >= 0, np.abs(top.logprobs - truth), 0)
    if proved_rows.any():
        assert error[proved_rows].max() <= head.manifest.certificate.logprob_bound
    assert error.max() <= ROUNDING + TIE * size_of or proved_rows.any()
    logits[:, ban or []] = -np.inf
    agrees(top, logits, k)


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


def test_tanh_is_as_exact_as_the_proof_needs(tmp_path):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"])], "tanh", values[:1], values[1:])
    path = tmp_path / "tanh.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(path))
    x = np.r_[np.linspace(-20, 20, 2_000_001), np.geomspace(1e-30, 1e30, 200_001)].astype(np.float32)
    for tanh in (Graph(path, "cpu", 1)(x=x)[0], np.tanh(x)):
        assert np.abs(tanh - np.tanh(x.astype(np.float64))).max() < rounding.TANH_ERROR
