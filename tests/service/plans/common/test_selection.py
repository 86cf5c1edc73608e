import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.plans.common.selection import SMALL, largest, ranked


def stable_sort(scores: np.ndarray, n: int) -> np.ndarray:
    return np.argsort(-scores.astype(np.float64), kind="stable")[:n]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.data())
def test_equals_a_stable_sort_with_many_ties(values, data):
    scores = np.array(values, np.float32)
    n = data.draw(st.integers(1, len(values)))
    assert ranked(scores, n).tolist() == stable_sort(scores, n).tolist()
    assert largest(scores, n).tolist() == sorted(stable_sort(scores, n))


@given(st.integers(0, 10_000), st.integers(1, 3 * SMALL), st.sampled_from([0, 1, 3, 40]))
def test_threshold_path_equals_a_stable_sort(seed, n, decimals):
    size = 3 * SMALL
    scores = np.round(np.random.default_rng(seed).standard_normal(size), decimals).astype(np.float32)
    assert largest(scores, n).tolist() == sorted(stable_sort(scores, n))
    assert ranked(scores, n).tolist() == stable_sort(scores, n).tolist()


@pytest.mark.parametrize("n", [1, 7, SMALL, 2 * SMALL])
def test_sorted_and_constant_scores(n):
    """Sorted scores fool every-64th sampling least and most; constant ones are all ties."""
    rising = np.arange(2 * SMALL, dtype=np.float32)
    for scores in (rising, rising[::-1].copy(), np.zeros_like(rising)):
        assert ranked(scores, n).tolist() == stable_sort(scores, n).tolist()


def test_a_sample_that_misses_every_large_score():
    """The guess is then too high or too low, and the answer still right."""
    scores = np.zeros(4 * SMALL, np.float32)
    scores[1::64] = np.arange(1, scores[1::64].size + 1)
    assert ranked(scores, 5).tolist() == stable_sort(scores, 5).tolist()
    scores = -scores
    assert ranked(scores, 5).tolist() == stable_sort(scores, 5).tolist()


def test_infinities_are_ordinary_scores():
    scores = np.full(2 * SMALL, -np.inf, np.float32)
    scores[[5, 9]] = 1.0
    assert ranked(scores, 3).tolist() == [5, 9, 0]
