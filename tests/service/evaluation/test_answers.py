"""Answers held against exact ones: as the evaluator would; equal scores are no misses."""

from __future__ import annotations

import numpy as np
import pytest
from shortlist.core.filters import UNRESTRICTED
from shortlist.errors import BadInput
from shortlist.evaluation.answers import join_equal, judge_answers
from shortlist.evaluation.ranking import rank_scores
from shortlist.evaluation.statistics import compute_log_normalizers, mark_hits

from tests.support.layers import logits_of, make_contexts, make_dense, make_head

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=90, seed=5).contexts
OPTIONS = {"basis": "context", "width": "6", "full_view": "20"}


@pytest.fixture(scope="module")
def dense():
    return make_dense()


@pytest.fixture(scope="module")
def head(dense, tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("answers"), dense, options=OPTIONS)


def check_against_distribution(head, rows, k=5):
    """The figures are those by all exact scores."""
    top = head.topk_by_plan(rows, k)
    figures = judge_answers(head, rows, top.ids, top.logprobs, (1, k))
    scores = head.exact.compute_distribution(rows).astype(np.float64)
    log_p = scores - compute_log_normalizers(scores)[:, None]
    true, _ = rank_scores(scores, k)
    for depth in (1, k):
        marks = mark_hits(top.ids, true, depth)
        assert figures.hits[depth] == pytest.approx(marks.mean(axis=1))
        best = np.exp(np.take_along_axis(log_p, true.ids[:, :depth], axis=1))
        assert figures.lost[depth] == pytest.approx((best * ~marks).sum(axis=1), abs=1e-4)
    error = np.abs(top.logprobs - np.take_along_axis(log_p, top.ids, axis=1))
    bound = 0 if head.certified is None else head.manifest.certificate.logprob_bound
    assert figures.mean_error == pytest.approx(error.mean(axis=1), abs=1e-4 + bound)
    assert figures.max_error == pytest.approx(error.max(axis=1), abs=1e-4 + bound)
    return figures


def test_figures_are_those_by_all_exact_scores(head):
    figures = check_against_distribution(head, ROWS)
    assert 0.5 < figures.hits[1].mean() < 1, "there is something to find"


def test_figures_by_proofs(dense, tmp_path, prove_small_layers):
    head = make_head(tmp_path, dense, options=OPTIONS)
    assert head.certified is not None
    check_against_distribution(head, ROWS)


def test_figures_of_a_head_that_is_its_own_reference(adaptive_head):
    rows = make_contexts(rows=20, dim=adaptive_head.manifest.dim, seed=7).contexts
    figures = check_against_distribution(adaptive_head, rows, 3)
    assert figures.hits[3].min() == 1, "its k best are exact"


def test_a_class_of_the_same_score_is_no_miss(tmp_path):
    weight = make_dense().weight.copy()
    weight[150:] = weight[:150]
    twins = make_dense()
    twins.weight[:] = weight
    head = make_head(tmp_path, twins, options={"basis": "context", "width": "16", "full_view": "300"})
    exact = head.topk(ROWS, 1, exact=True)
    others = (exact.ids + 150) % 300
    figures = judge_answers(head, ROWS, others, exact.logprobs, (1,))
    assert figures.hits[1].min() == 1
    assert figures.lost[1].max() == 0
    strangers = judge_answers(head, ROWS, (exact.ids + 1) % 300, exact.logprobs, (1,))
    assert strangers.hits[1].max() == 0
    best = np.exp(logits_of(twins, ROWS))
    assert strangers.lost[1] == pytest.approx(best.max(axis=1) / best.sum(axis=1), rel=1e-3)


def test_scores_that_rounding_tells_apart_are_equal():
    scores = np.array([[1.0, 100.0, 100.0 - 2e-5, 99.0, -np.inf], [3.0, 2.0, 2.0, 1.0, 0.0]])
    joined = join_equal(scores)
    assert joined.tolist() == [[1.0, 100.0, 100.0, 99.0, -np.inf], [3.0, 2.0, 2.0, 1.0, 0.0]]


def test_without_dense_there_is_nothing_to_hold_against(dense, tmp_path):
    head = make_head(tmp_path, dense, options=OPTIONS, keep_dense=False)
    top = head.run(head.plan, ROWS, 1, UNRESTRICTED).topk("estimated")
    with pytest.raises(BadInput, match="--no-dense"):
        judge_answers(head, ROWS, top.ids, top.logprobs, (1,))
