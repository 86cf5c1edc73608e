"""Parts of the native loops against numpy, for every target that this processor has."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shortlist.kernels.native.arguments import point_at
from shortlist.kernels.primitives import layout
from shortlist_exporter.graphs.four_bits import pack_four_bits

from tests.support.kernels import list_targets, open_parts

seeds = st.integers(0, 1 << 32)


@pytest.fixture(scope="module", params=list_targets())
def parts(request):
    return open_parts(request.param)


def pointers(*arrays):
    return [None if array is None else point_at(array) for array in arrays]


def make_levels(random, limit, count):
    """Levels with the largest of both signs among them, which saturate where sums are narrow."""
    levels = random.integers(-limit, limit + 1, count)
    extreme = random.random(count) < random.choice([0, 0.5, 1])
    return np.where(extreme, limit * random.choice([-1, 1], count), levels).astype(np.int8)


def make_weights(random, shape):
    return np.where(random.random(shape) < random.choice([0, 1]), 255, random.integers(0, 256, shape)).astype(np.uint8)


@given(st.integers(1, 40), seeds)
@settings(max_examples=60, deadline=None)
def test_products_of_a_block_are_exact(parts, lines, seed):
    random = np.random.default_rng(seed)
    weights = make_weights(random, (16, 4 * lines))
    block, sums = layout.arrange_blocks(weights), np.empty((2, 16), np.int32)
    levels = make_levels(random, 127, 4 * lines)
    parts.multiply_block(*pointers(block, levels), lines, point_at(sums[0]))
    np.testing.assert_array_equal(sums[0], weights.astype(int) @ levels.astype(int))
    digits = [make_levels(random, 64, 4 * lines) for _ in range(2)]
    parts.multiply_block_by_digits(*pointers(block, *digits), lines, *pointers(*sums))
    np.testing.assert_array_equal(sums, np.array(digits, int) @ weights.T.astype(int))


@given(st.integers(1, 40), st.integers(1, 20), seeds)
@settings(max_examples=60, deadline=None)
def test_products_of_four_bits_are_exact(parts, lines, rows, seed):
    random = np.random.default_rng(seed)
    weights = random.integers(random.choice([0, 15]), 16, (16, 8 * lines), dtype=np.uint8)
    levels, sums = make_levels(random, 127, (rows, 8 * lines)), np.empty((rows, 16), np.int32)
    packed = pack_four_bits(weights)
    assert packed.nbytes == weights.size // 2
    parts.multiply_four_bit_block(*pointers(packed, levels), rows, lines, point_at(sums))
    np.testing.assert_array_equal(sums, levels.astype(int) @ weights.T.astype(int))


@given(st.integers(1, 40), seeds)
@settings(max_examples=60, deadline=None)
def test_products_of_two_bits_are_exact(parts, lines, seed):
    random = np.random.default_rng(seed)
    weights = (2 * random.integers(random.choice([0, 3]), 4, (16, 16 * lines)) - 3).astype(np.int8)
    levels, sums = make_levels(random, 127, 16 * lines), np.empty(16, np.int32)
    packed = layout.pack_two_bits(weights)
    assert packed.nbytes == weights.size // 4
    parts.multiply_two_bit_block(*pointers(packed, levels), lines, point_at(sums))
    np.testing.assert_array_equal(2 * sums - 3 * levels.astype(int).sum(), weights.astype(int) @ levels.astype(int))


@given(st.integers(1, 20), seeds)
@settings(max_examples=60, deadline=None)
def test_products_of_rows_are_exact(parts, lines, seed):
    random = np.random.default_rng(seed)
    row, sums = make_weights(random, 64 * lines), np.empty(2, np.int32)
    levels = make_levels(random, 127, 64 * lines)
    assert parts.multiply_row(*pointers(row, levels), lines) == row.astype(int) @ levels.astype(int)
    digits = [make_levels(random, 64, 64 * lines) for _ in range(2)]
    parts.multiply_row_by_digits(*pointers(row, *digits), lines, point_at(sums))
    np.testing.assert_array_equal(sums, np.array(digits, int) @ row.astype(int))


@given(st.lists(st.floats(-9, 9, width=16) | st.just(-np.inf), min_size=1), st.floats(-9, 9, width=16))
@settings(max_examples=100, deadline=None)
def test_scores_that_reach_a_threshold(parts, values, threshold):
    scores, positions = np.array(values, np.float32), np.full(len(values) + 1, -7, np.int32)
    count = parts.select_reaching(point_at(scores), scores.size, threshold, point_at(positions))
    np.testing.assert_array_equal(positions[:count], (scores >= np.float32(threshold)).nonzero()[0])
    assert positions[-1] == -7


@given(st.lists(st.floats(-1000, 1000, width=16) | st.just(-np.inf), min_size=1, max_size=300), st.integers(1, 320))
@settings(max_examples=200, deadline=None)
def test_the_threshold_is_the_nth_largest(parts, values, target):
    scores = np.array(values, np.float32)
    ranked = np.sort(scores[scores > -np.inf])[::-1]
    expected = scores >= ranked[min(target, ranked.size) - 1] if ranked.size else np.zeros(scores.size, bool)
    threshold = parts.find_threshold(point_at(scores), None, scores.size, target, 0)
    np.testing.assert_array_equal(scores >= np.float32(threshold), expected)
    positions, spare = np.empty(scores.size, np.int32), np.empty_like(scores)
    count = parts.select_best(point_at(scores), scores.size, target, *pointers(positions, spare))
    np.testing.assert_array_equal(positions[:count], expected.nonzero()[0])


@given(st.integers(500, 5000), st.integers(1, 5200), st.sampled_from([0.0, 1.0, 1000.0]), seeds)
@settings(max_examples=100, deadline=None)
def test_the_best_of_thousands_are_selected(parts, count, target, scale, seed):
    """Some are equal, and some -inf; scales make some differ by next to nothing beside the others."""
    random = np.random.default_rng(seed)
    scores = random.standard_normal(count).astype(np.float32)
    scores[random.random(count) < 0.1] *= scale
    scores[random.random(count) < 0.1] = -np.inf
    ranked = np.sort(scores[scores > -np.inf])[::-1]
    expected = (scores >= ranked[min(target, ranked.size) - 1]).nonzero()[0]
    positions, spare = np.full(count + 1, -7, np.int32), np.full(count + 1, 7, np.float32)
    chosen = parts.select_best(point_at(scores), count, target, *pointers(positions, spare))
    np.testing.assert_array_equal(positions[:chosen], expected)
    assert (positions[-1], spare[-1]) == (-7, 7)
    threshold = parts.find_threshold(point_at(scores), None, count, target, 0)
    np.testing.assert_array_equal((scores >= np.float32(threshold)).nonzero()[0], expected)


@given(st.integers(1, 60), st.integers(1, 500), seeds)
@settings(max_examples=100, deadline=None)
def test_groups_are_opened_until_they_hold_enough(parts, groups, target, seed):
    random = np.random.default_rng(seed)
    scores = random.integers(-20, 20, groups).astype(np.float32)
    sizes = random.integers(1, 20, groups).astype(np.int32)
    ranked = np.argsort(-scores, kind="stable")
    reached = sizes[ranked].cumsum() >= min(target, sizes.sum())
    threshold = parts.find_threshold(*pointers(scores, sizes), groups, target, 0)
    np.testing.assert_array_equal(scores >= np.float32(threshold), scores >= scores[ranked[reached.argmax()]])


@given(st.integers(1, 100), seeds)
@settings(max_examples=50, deadline=None)
def test_levels_are_those_of_the_graphs(parts, count, seed):
    values = np.random.default_rng(seed).standard_normal(count).astype(np.float32)
    levels = np.empty(count, np.int8)
    scale = parts.quantize(point_at(values), count, point_at(levels))
    assert scale == np.abs(values).max() / np.float32(127)
    np.testing.assert_array_equal(levels, np.round(values / np.float32(scale)))


@given(st.integers(1, 700), st.floats(0.1, 80), seeds)
@settings(max_examples=100, deadline=None)
def test_the_sum_of_exponentials_is_accurate(parts, count, spread, seed):
    scores = (np.random.default_rng(seed).standard_normal(count) * spread).astype(np.float32)
    scores[seed % count] = -np.inf if count > 1 else 0
    wanted = np.exp(scores.astype(np.float64) - scores.max()).sum()
    assert parts.sum_exp(point_at(scores), count, scores.max()) == pytest.approx(wanted, rel=1e-6)
    scores[0] = np.nan
    assert np.isnan(parts.sum_exp(point_at(scores), count, 0))


@given(st.lists(st.integers(-9, 9) | st.just(-np.inf), min_size=1, max_size=200), st.integers(1, 64), seeds)
@settings(max_examples=100, deadline=None)
def test_the_best_of_two_sets_are_in_order_and_the_lower_of_equal_ones_leads(parts, values, k, seed):
    rng, logits = np.random.default_rng(seed), np.array(values, np.float32)
    ids, sides = rng.permutation(3 * logits.size)[: logits.size], rng.integers(0, 2, logits.size)
    best, best_ids = np.full(k, -np.inf, np.float32), np.full(k, -1)
    for side in (0, 1):
        own = np.flatnonzero(sides == side)
        own = own[ids[own].argsort()]
        if own.size:
            parts.take_best(*pointers(logits[own], ids[own]), own.size, *pointers(best, best_ids), k)
    order = np.lexsort((ids, -logits))
    wanted = order[logits[order] > -np.inf][:k]
    np.testing.assert_array_equal(best_ids[: wanted.size], ids[wanted])
    np.testing.assert_array_equal(best[: wanted.size], logits[wanted])
    assert (best_ids[wanted.size :] == -1).all()
    assert (best[wanted.size :] == -np.inf).all()


@given(st.sets(st.integers(0, 40), min_size=1), st.sets(st.integers(0, 40), min_size=1))
@settings(max_examples=100, deadline=None)
def test_classes_of_both_sets_count_once(parts, one, two):
    known, ids = (np.array(sorted(ids), np.int64) for ids in (one, two))
    logits = np.zeros(ids.size, np.float32)
    bits = np.zeros(2, np.int64)
    new = parts.drop_known(point_at(known), known.size, point_at(ids), ids.size, point_at(bits), point_at(logits))
    assert new == len(two - one)
    assert not bits.any()
    np.testing.assert_array_equal(logits == 0, [number not in one for number in ids])
