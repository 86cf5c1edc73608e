"""The k best of all logits by compiled loops: against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.kernels.dense_rows import CompiledRanking
from shortlist.kernels.native.library import open_target
from shortlist.plans.full import rank_rows

from tests.support.kernels import list_targets

SIZES = [1, 2, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 3000]


@pytest.fixture(scope="module", params=list_targets())
def ranking(request):
    ranking = CompiledRanking(1)
    ranking.kernels = open_target(request.param)
    return ranking


def make_logits(random, count, classes):
    logits = random.standard_normal((count, classes)) * 10.0 ** random.integers(-3, 4)
    if random.random() < 0.5:
        logits = np.round(logits)  # many are equal
    logits[:, random.random(classes) < random.choice([0, 0, 0.1, 0.9])] = -np.inf
    return logits.astype(np.float32)


def make_lists(random, count, classes):
    allow, ban = (
        random.integers(-1, classes, (random.choice([1, count]), random.integers(0, 2 * classes))) for _ in range(2)
    )
    return ClassFilter(allow if random.random() < 0.4 else None, ban if random.random() < 0.4 else None)


@given(st.sampled_from(SIZES), st.integers(1, 5), st.booleans(), st.integers(1, 3), st.integers(0, 1 << 32))
def test_ranks_are_those_of_numpy(ranking, classes, count, few, threads, seed):
    random = np.random.default_rng(seed)
    logits, lists = make_logits(random, count, classes), make_lists(random, count, classes)
    k = int(random.integers(1, min(8, classes) + 1 if few else classes + 1))
    ranking.threads = threads
    wanted, result = rank_rows(logits.copy(), k, lists), ranking.rank(logits.copy(), k, lists)
    np.testing.assert_array_equal(result.ids, wanted.ids)
    np.testing.assert_array_equal(result.logits, wanted.logits)
    np.testing.assert_array_equal(result.scored, wanted.scored)
    np.testing.assert_allclose(result.log_normalizer, wanted.log_normalizer, atol=2e-6, rtol=2e-7)


def test_the_normaliser_of_many_classes_is_exact(ranking):
    """A sum in float32 alone would be off by a thousandth."""
    logits = np.random.default_rng(0).standard_normal((2, 1 << 20)).astype(np.float32)
    truth = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
    np.testing.assert_allclose(ranking.rank(logits, 1, UNRESTRICTED).log_normalizer, truth, atol=3e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_overflow_shows_in_the_normaliser_of_its_row_alone(ranking, bad):
    logits = np.zeros((3, 100), np.float32)
    logits[1, 7] = bad
    result = ranking.rank(logits, 5, UNRESTRICTED)
    assert np.isfinite(result.log_normalizer).tolist() == [True, False, True]
    assert ((result.ids >= -1) & (result.ids < 100)).all()


def test_a_row_without_classes(ranking):
    result = ranking.rank(np.full((1, 40), -np.inf, np.float32), 2, UNRESTRICTED)
    assert (result.ids.tolist(), result.log_normalizer.tolist()) == ([[-1, -1]], [-np.inf])


def test_no_rows(ranking):
    assert ranking.rank(np.empty((0, 40), np.float32), 2, UNRESTRICTED).ids.shape == (0, 2)


def test_equal_scores_come_by_lower_id(ranking):
    logits = np.array([[0.0, -0.0, 1.0, 1.0, -0.0, 1.0]], np.float32).repeat(2, axis=0)
    assert ranking.rank(logits, 5, UNRESTRICTED).ids.tolist() == [[2, 3, 5, 0, 1]] * 2
