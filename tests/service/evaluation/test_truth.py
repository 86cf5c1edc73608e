"""Exact answers by whatever backend, against float64."""

import numpy as np
import pytest
from shortlist.errors import BadInput
from shortlist.evaluation.truth import Truth, compute_truth, rank_by_plan, rank_logits

from tests.support.layers import logprobs_of, make_contexts, make_dense, make_head

CONTEXTS = make_contexts(100, seed=9).contexts


@pytest.fixture(scope="module")
def head(tmp_path_factory):
    return make_head(tmp_path_factory.mktemp("svd"), make_dense(padded=np.array([0, 299])))


def test_a_plan_s_truth_is_that_of_float64(head):
    counts = []
    rank_rows = rank_by_plan(head.dense, CONTEXTS, np.arange(100))
    truth = compute_truth(rank_rows, CONTEXTS, 10, step=30, progress=counts.append, targets=np.arange(100))
    exact = logprobs_of(make_dense(padded=np.array([0, 299])), CONTEXTS)
    assert (truth.ids == np.argsort(-exact, axis=1)[:, :10]).all()
    np.testing.assert_allclose(truth.logprobs, np.take_along_axis(exact, truth.ids, axis=1), atol=1e-4)
    assert (truth.ids.dtype, truth.logprobs.dtype, truth.log_normalizer.dtype) == (np.int64, np.float32, np.float32)
    assert counts == [30, 30, 30, 10]
    assert truth.targets.tolist() == list(range(100))


def test_the_first_rows_of_a_truth(head):
    truth = compute_truth(rank_by_plan(head.dense, CONTEXTS, np.arange(100)), CONTEXTS, 5)
    first = truth.first_rows(7)
    assert (first.ids == truth.ids[:7]).all()
    assert [len(part) for part in (first.contexts, first.logprobs, first.log_normalizer)] == [7, 7, 7]


def test_every_third_row_of_a_truth(head):
    truth = compute_truth(rank_by_plan(head.dense, CONTEXTS, np.arange(100)), CONTEXTS, 5)
    some = truth.take_every(3)
    np.testing.assert_array_equal(some.ids, truth.ids[::3])
    np.testing.assert_array_equal(some.contexts, CONTEXTS[::3])
    assert [len(part) for part in (some.logprobs, some.log_normalizer)] == [34, 34]


def test_classes_of_probability_0_are_no_answers():
    logits = np.array([[1.0, -np.inf, 3.0, -np.inf]], np.float32)
    assert rank_logits(logits, 3).ids.tolist() == [[2, 0, -1]]
    truth = compute_truth(lambda rows, k: rank_logits(logits, k), np.zeros((1, 2), np.float32), 3)
    assert truth.ids.tolist() == [[2, 0, -1]]
    assert truth.logprobs[0, 2] == -np.inf


def test_equal_logits_are_ranked_by_id():
    assert rank_logits(np.ones((2, 6), np.float32), 3).ids.tolist() == [[0, 1, 2]] * 2


def test_a_truth_of_many_chunks_knows_its_equal_classes():
    logits = np.random.default_rng(0).integers(-2, 3, (50, 30)).astype(np.float32)
    whole = rank_logits(logits, 4)
    truth = compute_truth(lambda rows, k: rank_logits(logits[rows], k), np.zeros((50, 2), np.float32), 4, step=7)
    kept = Truth.from_tensors(truth.contexts, truth.to_tensors())
    for best in (truth.best, kept.best):
        for name, values in whole.best.to_tensors().items():
            np.testing.assert_array_equal(best.to_tensors()[name], values)


def test_scores_that_overflow_name_the_row_of_the_file(head):
    rows = CONTEXTS.copy()
    rows[40] = 3e38
    with pytest.raises(BadInput, match="contexts row 140 is so large that its scores overflow"):
        compute_truth(rank_by_plan(head.dense, rows, np.arange(100, 200)), rows, 5)
