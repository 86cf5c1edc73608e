import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.plans.common.selection import MAX_PARTITIONED_SCORES, find_largest, rank_best


def stable_sort(scores: np.ndarray, n: int) -> np.ndarray:
    return np.argsort(-scores.astype(np.float64), kind="stable")[:n]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.data())
def test_equals_a_stable_sort_with_many_ties(values, data):
    scores = np.array(values, np.float32)
    n = data.draw(st.integers(1, len(values)))
    assert rank_best(scores, n).tolist() == stable_sort(scores, n).tolist()
    assert find_largest(scores, n).tolist() == sorted(stable_sort(scores, n))


@given(st.integers(0, 10_000), st.integers(1, 3 * MAX_PARTITIONED_SCORES), st.sampled_from([0, 1, 3, 40]))
def test_threshold_path_equals_a_stable_sort(seed, n, decimals):
    size = 3 * MAX_PARTITIONED_SCORES
    scores = np.round(np.random.default_rng(seed).standard_normal(size), decimals).astype(np.float32)
    assert find_largest(scores, n).tolist() == sorted(stable_sort(scores, n))
    assert rank_best(scores, n).tolist() == stable_sort(scores, n).tolist()


@pytest.mark.parametrize("n", [1, 7, MAX_PARTITIONED_SCORES, 2 * MAX_PARTITIONED_SCORES])
def test_sorted_and_constant_scores(n):
    """Sorted scores fool every-64th sampling least and most; constant ones are all ties."""
    rising = np.arange(2 * MAX_PARTITIONED_SCORES, dtype=np.float32)
    for scores in (rising, rising[::-1].copy(), np.zeros_like(rising)):
        assert rank_best(scores, n).tolist() == stable_sort(scores, n).tolist()


def test_a_sample_that_misses_every_large_score():
    """The guess is then too high or too low, and the answer still right."""
    scores = np.zeros(4 * MAX_PARTITIONED_SCORES, np.float32)
    scores[1::64] = np.arange(1, scores[1::64].size + 1)
    assert rank_best(scores, 5).tolist() == stable_sort(scores, 5).tolist()
    scores = -scores
    assert rank_best(scores, 5).tolist() == stable_sort(scores, 5).tolist()


@pytest.mark.parametrize("size", [10, 100, 2 * MAX_PARTITIONED_SCORES])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_as_many_are_chosen_where_some_are_no_numbers(size, share):
    """Plans give as many candidates as were asked for; the head refuses the row by its normaliser."""
    scores = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    scores[: round(share * size)] = np.nan
    scores[-1] = np.inf
    for n in (1, size // 2, size - 1):
        ids = find_largest(scores, n)
        assert ids.size == n
        assert (np.diff(ids) > 0).all()
        assert rank_best(scores, n).size == n


def test_infinities_are_ordinary_scores():
    scores = np.full(2 * MAX_PARTITIONED_SCORES, -np.inf, np.float32)
    scores[[5, 9]] = 1.0
    assert rank_best(scores, 3).tolist() == [5, 9, 0]
