"""`shortlist evaluate`: figures against a slow plain transcription, what is missing, what warns."""

from __future__ import annotations

import json

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED
from shortlist.errors import BadInput
from shortlist.evaluation.evaluator import BAND_MISSES, evaluate, summarize_depth
from shortlist.plans.registry import Plan

from tests.support.evaluation import CONTEXTS, OPTIONS, SAMPLE, TARGETS
from tests.support.heads.grouped import promise_contexts
from tests.support.layers import (
    CLASSES,
    DIM,
    contexts_elsewhere,
    logits_of,
    logprobs_of,
    make_dense,
    make_head,
)

pytestmark = pytest.mark.slow

CANDIDATES = {1: 12, 5: 20, 10: 40}  # by k: `full_view`, or four for each class that is asked for
NO_CLASSES = np.empty((150, 0), np.int64), np.empty((150, 0), np.float32)  # ids and their logits


@pytest.fixture(scope="module")
def evaluation(narrow_head):
    return evaluate(narrow_head, CONTEXTS, TARGETS)


@pytest.fixture(scope="module")
def no_dense(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("cut"), make_dense(), SAMPLE, options=OPTIONS, keep_dense=False)


def test_requests_for_each_k_are_measured_and_their_risk_beside_what_was_missed(narrow_head, promise_head):
    asked = evaluate(narrow_head, CONTEXTS, at=(1, 20)).asked
    ids = narrow_head.topk_by_plan(CONTEXTS, 20).ids
    best = first(logits_of(make_dense(), CONTEXTS), 20)
    assert asked[20].precision.mean == pytest.approx((ids[:, :, None] == best[:, None, :]).any(axis=1).mean())
    assert asked[20].missed == pytest.approx(1 - asked[20].precision.mean)
    assert asked[1].risk is None
    risk = evaluate(promise_head, promise_contexts.contexts[-200:], at=(1,)).asked[1].risk
    expected = promise_head.plan.topk(promise_contexts.contexts[-200:], 1, UNRESTRICTED).risk.mean()
    assert risk == pytest.approx(expected, rel=1e-5)
    with pytest.raises(BadInput, match="k is 301 but"):
        evaluate(narrow_head, CONTEXTS, at=(301,))


def test_each_k_is_asked_for_once(narrow_head, monkeypatch):
    run, ks = narrow_head.run, []
    monkeypatch.setattr(narrow_head, "run", lambda plan, rows, k, lists: ks.append(k) or run(plan, rows, k, lists))
    monkeypatch.setattr("shortlist.evaluation.evaluator.measure_dense_share", lambda head, rows: 0.0)
    evaluation = evaluate(narrow_head, CONTEXTS, at=(1, 20, 100))
    assert sorted(ks) == [1, 5, 10, 20, 50, 100]
    assert evaluation.asked[1].precision == evaluation.precision[1]


def test_kinds_of_text_have_figures_of_their_own(narrow_head):
    kinds = {"even": np.arange(0, len(CONTEXTS), 2), "first": np.arange(10)}
    result = evaluate(narrow_head, CONTEXTS, kinds=kinds).kinds
    best = first(logits_of(make_dense(), CONTEXTS), 1)[:, 0]
    hits = narrow_head.topk_by_plan(CONTEXTS, 1).ids[:, 0] == best
    for name, rows in kinds.items():
        assert result[name].rows == len(rows)
        assert result[name].precision.mean == pytest.approx(hits[rows].mean())
    assert evaluate(narrow_head, CONTEXTS).kinds is None


def test_bands_hold_as_many_expected_misses_as_they_must():
    random = np.random.default_rng(0)
    risk = random.random(5000) ** 4
    hits = (random.random(5000) >= risk).astype(float)
    depth = summarize_depth(hits, risk)
    assert len(depth.bands) > 20
    assert sum(band.rows for band in depth.bands) == 5000
    assert all(band.rows * band.risk > BAND_MISSES - 1 for band in depth.bands)
    assert [band.risk for band in depth.bands] == sorted((band.risk for band in depth.bands), reverse=True)
    assert all(0.5 < band.missed / band.risk < 2 for band in depth.bands)
    assert len(summarize_depth(hits, risk / 1000).bands) == 1


def own_logits(head, n):
    """The paper's Algorithm 1, row by row: n candidates exact, the rest previewed."""
    rows = []
    for context, exact in zip(CONTEXTS, logits_of(make_dense(), CONTEXTS), strict=True):
        preview = head.plan.preview(context=context[None])[0][0].astype(np.float64)
        best = np.argsort(-preview, kind="stable")[:n]
        settings = head.manifest.settings
        share = min(1.0, (context.astype(np.float64) ** 2).sum() / settings.tail_size)
        logits = preview + share * settings.tail_shift
        logits[best] = exact[best]
        rows.append(logits)
    return np.array(rows)


def first(logits, k):
    return np.argsort(-logits, axis=1, kind="stable")[:, :k]


def candidates_only(head, n, k):
    """The k best of n candidates."""
    ids = []
    for context, exact in zip(CONTEXTS, logits_of(make_dense(), CONTEXTS), strict=True):
        preview = head.plan.preview(context=context[None])[0][0]
        best = np.argsort(-preview, kind="stable")[:n]
        ids.append(best[np.argsort(-exact[best], kind="stable")[:k]])
    return np.array(ids)


def test_precision_coverage_and_order(narrow_head, evaluation):
    true = first(logits_of(make_dense(), CONTEXTS), 100)
    ids = candidates_only(narrow_head, 40, 10)
    for k, candidates in CANDIDATES.items():
        answers = candidates_only(narrow_head, candidates, k)
        hits = [len(set(mine) & set(theirs[:k])) / k for mine, theirs in zip(answers, true, strict=True)]
        assert evaluation.precision[k].mean == pytest.approx(np.mean(hits))
        assert evaluation.precision[k].low < np.mean(hits) <= evaluation.precision[k].high
    assert evaluation.precision[5].mean < 1, "a head that errs, else this shows nothing"
    assert evaluation.precision[1].mean < (ids[:, 0] == true[:, 0]).mean(), "a request for ten is searched wider"
    for size in (10, 50, 100):
        mine = candidates_only(narrow_head, min(CLASSES, 4 * size), size)
        counts = [len(set(a) & set(b[:size])) for a, b in zip(mine, true, strict=True)]
        assert evaluation.coverage[size] == pytest.approx(np.mean(counts))
    assert set(evaluation.coverage) == {10, 50, 100}, "there are no 500 classes"
    assert evaluation.order_kept == pytest.approx((ids == true[:, :10]).all(axis=1).mean())


def test_divergence_and_normaliser(narrow_head, evaluation):
    log_p = logprobs_of(make_dense(), CONTEXTS)
    log_z = np.log(np.exp(logits_of(make_dense(), CONTEXTS)).sum(axis=1))
    logits = own_logits(narrow_head, 12)
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    kl = (np.exp(log_p) * (log_p - log_q)).sum(axis=1)
    assert evaluation.kl == pytest.approx({"mean": kl.mean(), "p99": np.percentile(kl, 99)}, rel=1e-3)
    z = np.exp(np.log(np.exp(own_logits(narrow_head, 40)).sum(axis=1)) - log_z)
    expected = {"mean": z.mean(), "p1": np.percentile(z, 1), "p99": np.percentile(z, 99)}
    assert evaluation.z_ratio == pytest.approx(expected, rel=1e-3)
    assert abs(evaluation.z_ratio["mean"] - 1) > 1e-4
    error = np.abs(np.log(z))  # numerators are exact, so a row's ten errors are its normaliser's
    assert evaluation.logprob_error["mean"] == pytest.approx(error.mean(), abs=1e-4)
    assert evaluation.logprob_error["max"] == pytest.approx(error.max(), abs=1e-4)
    hits = (candidates_only(narrow_head, 40, 1) == first(logits_of(make_dense(), CONTEXTS), 1))[:, 0]
    assert evaluation.logprob_error_hits["mean"] == pytest.approx(error[hits].mean(), abs=1e-4)
    assert evaluation.logprob_error_hits["p99"] == pytest.approx(np.percentile(error[hits].repeat(10), 99), abs=1e-4)


def test_targets(narrow_head, evaluation):
    log_p = logprobs_of(make_dense(), CONTEXTS)
    logits = own_logits(narrow_head, 12)
    log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    dense_ids = {k: first(log_p, k) for k in CANDIDATES}
    head_ids = {k: candidates_only(narrow_head, candidates, k) for k, candidates in CANDIDATES.items()}
    for targets, logprobs, ids in (
        (evaluation.dense_targets, log_p, dense_ids),
        (evaluation.head_targets, log_q, head_ids),
    ):
        nll = -logprobs[np.arange(150), TARGETS].mean()
        assert targets.nll == pytest.approx(nll, rel=1e-4)
        assert targets.perplexity == pytest.approx(np.exp(nll), rel=1e-3)
        for k in (1, 5, 10):
            assert targets.accuracy[k].mean == pytest.approx((ids[k] == TARGETS[:, None]).any(axis=1).mean())


def test_targets_that_dense_gets_right(narrow_head):
    best = first(logits_of(make_dense(), CONTEXTS), 1)[:, 0]
    evaluation = evaluate(narrow_head, CONTEXTS, best)
    assert evaluation.dense_targets.accuracy[1].mean == 1
    assert evaluation.head_targets.accuracy[1].mean == evaluation.precision[1].mean


def test_costs(narrow_head, evaluation):
    quality = narrow_head.manifest.quality
    assert (evaluation.cost_macs, evaluation.cost_bytes) == (quality.cost_macs, quality.cost_bytes)
    assert evaluation.cost_macs == pytest.approx((DIM * 6 + CLASSES * 6 + DIM * 12) / (CLASSES * DIM)), (
        "the projection too"
    )
    assert evaluation.candidates == {"mean": 40, "p99": 40}
    assert evaluation.answered_dense == 0
    assert evaluation.promised == {1: quality.p_at_1, 5: quality.p_at_5, 10: quality.p_at_10}


def test_dense_by_number_of_rows_flatters_nothing(narrow_head, monkeypatch):
    monkeypatch.setattr(narrow_head, "manifest", narrow_head.manifest.model_copy(update={"dense_crossover": 1}))
    evaluation = evaluate(narrow_head, CONTEXTS)
    assert evaluation.answered_dense == 1
    assert evaluation.precision[5].mean < 1
    assert evaluation.candidates["mean"] == 40


def test_no_targets(narrow_head):
    evaluation = evaluate(narrow_head, CONTEXTS)
    assert (evaluation.head_targets, evaluation.dense_targets) == (None, None)
    assert evaluation.kl is not None
    assert evaluation.missing == ["there are no targets, so no target accuracy, NLL and perplexity"]


def test_no_truth_no_precision(no_dense):
    evaluation = evaluate(no_dense, CONTEXTS, TARGETS)
    for name in ("precision", "coverage", "order_kept", "kl", "z_ratio", "logprob_error", "dense_targets", "warning"):
        assert getattr(evaluation, name) is None, name
    assert evaluation.head_targets.nll > 0
    assert evaluation.candidates["mean"] == 40
    assert "exported with --no-dense" in evaluation.missing[0]


def test_a_plan_without_a_distribution(narrow_head, monkeypatch):
    monkeypatch.setattr(
        narrow_head.plan, "compute_distribution", lambda contexts: Plan.compute_distribution(narrow_head.plan, contexts)
    )
    evaluation = evaluate(narrow_head, CONTEXTS, TARGETS)
    assert evaluation.kl is None
    assert (evaluation.head_targets.nll, evaluation.head_targets.perplexity) == (None, None)
    assert evaluation.dense_targets.nll > 0
    assert evaluation.precision is not None
    assert "no KL" in evaluation.missing[0]


def test_the_rows_that_the_export_held_out_keep_its_promise(narrow_head):
    evaluation = evaluate(narrow_head, SAMPLE.contexts[-300:])
    assert evaluation.rows == narrow_head.manifest.quality.rows
    for k, promise in evaluation.promised.items():
        assert evaluation.precision[k].mean == pytest.approx(promise, abs=1e-3), "float rounding may swap a class"
    assert evaluation.logprob_error["mean"] == pytest.approx(narrow_head.manifest.quality.logprob_error_mean, rel=1e-2)
    assert evaluation.warning is None


def test_contexts_of_another_domain_warn(narrow_head):
    evaluation = evaluate(narrow_head, contexts_elsewhere(SAMPLE.contexts))
    assert evaluation.precision[1].high < evaluation.promised[1]
    assert evaluation.warning.startswith("these contexts are not like those that the bundle was measured on: P@1 is 0.")
    assert f"lower than the {evaluation.promised[1]:.4f} at the export" in evaluation.warning


def test_intervals_are_over_documents_where_these_are_named(narrow_head):
    best, ids = logits_of(make_dense(), CONTEXTS).argmax(axis=1), narrow_head.topk_by_plan(CONTEXTS, 1).ids[:, 0]
    documents = np.where(ids == best, np.arange(150) // 15, 10 + np.arange(150) // 75)  # two of misses alone
    kinds = {"all": np.arange(150)}
    rows = evaluate(narrow_head, CONTEXTS, best, at=[1], kinds=kinds)
    owners = evaluate(narrow_head, CONTEXTS, best, at=[1], kinds=kinds, documents=documents)
    for one, other in (
        (rows.precision, owners.precision),
        (rows.head_targets.accuracy, owners.head_targets.accuracy),
        ({1: rows.asked[1].precision}, {1: owners.asked[1].precision}),
        ({1: rows.kinds["all"].precision}, {1: owners.kinds["all"].precision}),
    ):
        assert one[1].mean == other[1].mean
        assert other[1].low < one[1].low < one[1].high < other[1].high
    with pytest.raises(BadInput, match=r"documents are int64 of shape \[149\] for 150 contexts"):
        evaluate(narrow_head, CONTEXTS, documents=documents[1:])


def test_rows_are_distinct_random_and_seeded(narrow_head):
    twice = np.vstack([CONTEXTS, CONTEXTS])
    assert evaluate(narrow_head, twice).rows == 150
    few = [evaluate(narrow_head, CONTEXTS, rows=40, seed=seed) for seed in (0, 0, 1)]
    assert few[0] == few[1]
    assert few[0].kl != few[2].kl
    assert few[0].rows == 40


def test_chunks_change_nothing(narrow_head, evaluation, monkeypatch):
    monkeypatch.setattr(narrow_head.dense, "max_rows", lambda: 7)
    small_chunks = evaluate(narrow_head, CONTEXTS, TARGETS)
    assert small_chunks.kl == pytest.approx(evaluation.kl, rel=1e-3)
    assert small_chunks.precision == evaluation.precision


def test_distributions_are_what_plans_normalise_by(narrow_head, tmp_path):
    full = make_head(tmp_path, make_dense(), method="full", options={})
    for plan in (narrow_head.plan, full.plan):
        logits = plan.compute_distribution(CONTEXTS)
        assert (logits.shape, logits.dtype) == ((150, CLASSES), np.float32)
        expected = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
        np.testing.assert_allclose(plan.compute_log_normalizer(CONTEXTS, *NO_CLASSES), expected, atol=1e-4)
        assert plan.compute_distribution(CONTEXTS[:0]).shape == (0, CLASSES)


def test_infinite_figures_are_null_in_json(evaluation):
    record = evaluation.model_copy(update={"kl": {"mean": np.inf, "p99": np.inf}})
    assert json.loads(record.model_dump_json())["kl"] == {"mean": None, "p99": None}


def test_perplexity_as_scored_is_that_of_the_answered_logprobs(narrow_head, evaluation):
    logprobs = narrow_head.score(narrow_head.plan, CONTEXTS, TARGETS[:, None])[:, 0].astype(np.float64)
    assert evaluation.head_targets.scored_nll == pytest.approx(-logprobs.mean(), abs=1e-6)
    assert evaluation.head_targets.scored_perplexity == pytest.approx(np.exp(-logprobs.mean()), rel=1e-6)
    assert evaluation.dense_targets.scored_nll is None
