"""The figures of a manifest, against a plain transcription; the bound of certified answers."""

import numpy as np
import pytest
from shortlist.bundle.reader import Bundle
from shortlist.evaluation import evaluate
from shortlist.evaluation.canary import check_canary
from shortlist.evaluation.truth import compute_truth
from shortlist_exporter.core.torch_scores import rank_by_module
from shortlist_exporter.core.types import Cost
from shortlist_exporter.graphs import certificate
from shortlist_exporter.inputs.sources import Dense
from shortlist_exporter.report.measure.answers import answer_sample
from shortlist_exporter.report.measure.comparison import compare_plans
from shortlist_exporter.report.measure.samples import read_calibration
from shortlist_exporter.verify.quality import (
    MAX_BOUND_NATS,
    answer_held_out,
    measure_certificate,
    measure_quality,
)

from tests.support.heads.grouped import DIM, PROMISE_OPTIONS
from tests.support.layers import logprobs_of, make_contexts, make_dense, make_head

CONTEXTS = make_contexts(150, seed=9).contexts


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    options = {"basis": "context", "width": "6", "full_view": "12"}
    return make_head(tmp_path_factory.mktemp("svd"), make_dense(), options=options)


def test_quality_is_of_the_plan_against_float64(head):
    module, exact = make_dense().module, logprobs_of(make_dense(), CONTEXTS)
    truth = compute_truth(rank_by_module(module, CONTEXTS), CONTEXTS, 10)
    rows = []
    answers = answer_held_out(head, CONTEXTS, (2,), rows.append)
    assert (set(answers), sum(rows)) == ({1, 2, 5, 10}, 150), "each row is asked once for each k"
    quality = measure_quality(answers, module, truth, {"first": np.arange(3)}, Cost(macs=0.5, bytes=0.25), (2,))
    true, shares = np.argsort(-exact, axis=1)[:, :10], {}
    for k in (1, 2, 5, 10):
        ids = head.topk_by_plan(CONTEXTS, k).ids
        shares[k] = [len(set(mine) & set(right[:k])) / k for mine, right in zip(ids, true, strict=True)]
    measured = {1: quality.p_at_1, 5: quality.p_at_5, 10: quality.p_at_10} | quality.p_at
    assert measured == pytest.approx({k: np.mean(hits) for k, hits in shares.items()})
    kind = quality.kinds["first"]
    assert (kind.p_at_1, kind.p_at_5) == pytest.approx((np.mean(shares[1][:3]), np.mean(shares[5][:3])))
    top = head.topk_by_plan(CONTEXTS, 10)
    assert quality.p_at_1 < (top.ids[:, 0] == true[:, 0]).mean(), "requests for ten are searched wider"
    errors = np.abs(top.logprobs - np.take_along_axis(exact, top.ids, axis=1))
    assert quality.logprob_error_mean == pytest.approx(errors.mean(), abs=1e-5)
    assert quality.logprob_error_p99 == pytest.approx(np.quantile(errors, 0.99), abs=1e-4)
    hits = top.ids[:, 0] == true[:, 0]
    assert 0 < hits.sum() < 150, "a head that misses some, else this shows nothing"
    assert quality.logprob_error_hits_mean == pytest.approx(errors[hits].mean(), abs=1e-5)
    assert quality.logprob_error_hits_p99 == pytest.approx(np.quantile(errors[hits], 0.99), abs=1e-4)
    assert (quality.rows, quality.cost_macs, quality.cost_bytes) == (150, 0.5, 0.25)


def test_the_cost_holds_the_rows_that_dense_answers_after_a_search(tmp_path):
    """Most rows are in too much doubt, so that dense answers them."""
    dense, contexts = make_dense(2003, DIM), make_contexts(1500, DIM)
    costs = {}
    for promise in ("0", "0.999999"):
        options = PROMISE_OPTIONS | {"promise": promise}
        promised = make_head(tmp_path / promise, dense, contexts, method="grouped", options=options)
        costs[promise] = promised.manifest.quality
    answered_dense = (promised.topk_by_plan(contexts.contexts[-150:], 10).scored == 2003).mean()
    assert answered_dense > 0.1, "else this shows nothing"
    assert costs["0.999999"].cost_macs == pytest.approx(costs["0"].cost_macs + answered_dense)
    assert costs["0.999999"].cost_bytes == pytest.approx(costs["0"].cost_bytes + answered_dense)


@pytest.mark.parametrize(("method", "options"), [("full", {}), ("svd", {"basis": "context", "full_view": "400"})])
def test_equal_rows_are_each_other_s_hits(tmp_path, method, options):
    """Which of four equal classes is the best is open: the exact layer keeps every promise."""
    dense = Dense(np.tile(make_dense(100).weight, (4, 1))[np.random.default_rng(0).permutation(400)])
    head = make_head(tmp_path, dense, method=method, options=options, promise={1: 0.9, 5: 0.9})
    quality = head.manifest.quality
    assert (quality.p_at_1, quality.p_at_5, quality.p_at_10) == (1, 1, 1)
    assert check_canary(head, Bundle(head.folder)) == 1
    result = evaluate(head, CONTEXTS)
    assert [share.mean for share in result.precision.values()] == [1, 1, 1]
    assert result.order_kept == 1
    assert read_calibration(head, Bundle(head.folder)).truth is not None
    sample = read_calibration(head, Bundle(head.folder))
    points, _, _ = compare_plans(head, sample, answer_sample(head, head.plan, sample))
    assert points[0].precision == {1: 1, 5: 1, 10: 1}


def test_a_certificate_bounds_every_error_that_was_met(tmp_path, monkeypatch):
    monkeypatch.setattr(certificate, "MIN_WEIGHTS", 0)
    head = make_head(tmp_path, make_dense(2000, 48), make_contexts(dim=48))
    contexts = make_contexts(150, 48, seed=9).contexts
    measured = measure_certificate(head, contexts, fallback=False)
    errors = np.array([head.certified.measure_error(row, 5)[0] for row in contexts])
    assert measured.rows == 150
    assert errors[np.isfinite(errors)].max(initial=0) < measured.logprob_bound or (
        measured.logprob_bound == MAX_BOUND_NATS
    )
    assert measured.dense_share == pytest.approx(1 - (errors <= measured.logprob_bound).mean())
    assert measured.dense_crossover is None
