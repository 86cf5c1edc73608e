"""The loops of plan `screen`, part by part: against numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.core.results import NO_CLASS

pytest.importorskip("numba")
from shortlist.kernels import screen_loops

pytestmark = pytest.mark.slow

seeds = st.integers(0, 1 << 32)


@given(st.integers(1, 40), st.integers(1, 9), seeds)
@settings(max_examples=50, deadline=None)
def test_rows_come_in_the_order_of_their_best_sets(count, sets, seed):
    rng = np.random.default_rng(seed)
    contexts, columns = rng.integers(-2, 3, (count, 6)), rng.integers(-2, 3, (6, sets))
    scores, order = screen_loops.order_rows(contexts.astype(np.float32), columns.astype(np.float32))
    np.testing.assert_array_equal(scores, contexts @ columns)
    np.testing.assert_array_equal(order, scores.argmax(axis=1).argsort(kind="stable"))


@given(st.integers(1, 700), st.floats(0.1, 80), seeds)
@settings(max_examples=100, deadline=None)
def test_the_sum_of_exponentials_is_accurate(count, spread, seed):
    scores = (np.random.default_rng(seed).standard_normal(count) * spread).astype(np.float32)
    scores[seed % count] = -np.inf if count > 1 else 0
    wanted = np.exp(scores.astype(np.float64) - scores.max()).sum()
    assert screen_loops.sum_exp(scores, scores.max()) == pytest.approx(wanted, rel=1e-6)
    scores[0] = np.nan
    assert np.isnan(screen_loops.sum_exp(scores, np.float32(0)))


@given(st.lists(st.integers(-9, 9) | st.just(-np.inf), min_size=1, max_size=200), st.integers(1, 64), seeds)
@settings(max_examples=100, deadline=None)
def test_the_best_of_two_sets_are_in_order_and_the_lower_of_equal_ones_leads(values, k, seed):
    rng, logits = np.random.default_rng(seed), np.array(values, np.float32)
    ids, parts = rng.permutation(3 * logits.size)[: logits.size], rng.integers(0, 2, logits.size)
    best, best_ids = np.full(k, -np.inf, np.float32), np.full(k, NO_CLASS)
    for part in (0, 1):
        own = np.flatnonzero(parts == part)
        own = own[ids[own].argsort()]
        screen_loops.take_best(logits[own], ids[own], best, best_ids)
    order = np.lexsort((ids, -logits))
    wanted = order[logits[order] > -np.inf][:k]
    np.testing.assert_array_equal(best_ids[: wanted.size], ids[wanted])
    np.testing.assert_array_equal(best[: wanted.size], logits[wanted])
    assert (best_ids[wanted.size :] == NO_CLASS).all()
    assert (best[wanted.size :] == -np.inf).all()


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)))
@settings(max_examples=100, deadline=None)
def test_classes_of_both_sets_count_once(one, two):
    known, ids = (np.array(sorted(ids), np.int64) for ids in (one, two))
    logits = np.zeros(ids.size, np.float32)
    assert screen_loops.drop_known(known, ids, logits) == len(two - one)
    np.testing.assert_array_equal(logits == 0, [number not in one for number in ids])
