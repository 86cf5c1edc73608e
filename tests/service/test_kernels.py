"""Compiled loops against numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")
from shortlist import byte_products, compiled_previews, compiled_selection, kernels

NO_SIZES = np.empty(0, np.int32)
seeds = st.integers(0, 1 << 32)


def address(array):
    return array.ctypes.data


def random_bytes(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, shape, np.uint8) for shape in shapes]


@pytest.mark.skipif(not byte_products.VNNI, reason="this processor has no AVX-512 VNNI")
@given(st.integers(1, 5), st.integers(1, 40), seeds)
@settings(max_examples=50, deadline=None)
def test_products_of_bytes_are_exact(blocks, steps, seed):
    weights, context = random_bytes(seed, (16 * blocks, 4 * steps), 4 * steps)
    context = context.view(np.int8)
    wanted = weights.astype(np.int64) @ context.astype(np.int64)
    laid, scale = byte_products.in_blocks(weights), np.arange(16 * blocks, dtype=np.float32)
    scores = np.empty(16, np.float32)
    for block in range(blocks):
        own = np.s_[16 * block : 16 * block + 16]
        places = address(laid[block]), address(context), steps, 7, address(scale[own]), address(scores)
        byte_products.block_scores(*places)
        np.testing.assert_array_equal(scores, (wanted[own] - 7).astype(np.float32) * scale[own])
        pair = np.stack([context, context[::-1]])
        if not steps % 2:
            both = np.empty(32, np.int32)
            byte_products.pair_products(laid, block, pair, both)
            expected = weights[16 * block : 16 * block + 16].astype(np.int64) @ pair.T.astype(np.int64)
            np.testing.assert_array_equal(both, expected.T.ravel())
    lines, levels = byte_products.in_lines(weights), byte_products.in_lines(context.view(np.uint8)[None])
    for row in range(len(weights)):
        assert address(lines[row]) % 64 == 0
        assert byte_products.row_product(address(lines[row]), address(levels), lines.shape[1] // 64) == wanted[row]


@pytest.mark.skipif(not byte_products.VNNI, reason="this processor has no AVX-512 VNNI")
@given(st.integers(1, 5), st.integers(1, 12), seeds)
@settings(max_examples=50, deadline=None)
def test_products_of_nibbles_are_exact(blocks, pairs, seed):
    rng = np.random.default_rng(seed)
    weights = (2 * rng.integers(0, 16, (16 * blocks, 16 * pairs)) - 15).astype(np.int8)
    context, scale = rng.integers(-127, 128, 16 * pairs).astype(np.int8), rng.random(16).astype(np.float32)
    wanted, laid = weights.astype(np.int64) @ context.astype(np.int64), byte_products.in_nibbles(weights)
    assert laid.nbytes == weights.size // 2
    shift = 15 * int(context.astype(np.int64).sum())
    for block in range(blocks):
        scores = np.full(16, 3, np.float32)
        places = address(laid[block]), address(context), laid.shape[1], shift, address(scale), address(scores)
        byte_products.add_nibble_scores(*places)
        expected = 3 + wanted[16 * block : 16 * block + 16].astype(np.float32) * scale
        np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-3)


@given(st.lists(st.floats(-9, 9, width=16) | st.just(-np.inf), max_size=100), st.floats(-9, 9, width=16))
@settings(max_examples=100, deadline=None)
def test_what_reaches_a_bar(values, bar):
    scores, chosen = np.array(values, np.float32), np.full(len(values) + 1, -7, np.int32)
    for reaching in (compiled_selection.reaching, compiled_selection.one_by_one):
        count = reaching(scores, np.float32(bar), chosen[:-1])
        np.testing.assert_array_equal(chosen[:count], (scores >= np.float32(bar)).nonzero()[0])
        assert chosen[-1] == -7


@given(st.lists(st.floats(-1000, 1000, width=16) | st.just(-np.inf), min_size=1, max_size=300), st.integers(1, 320))
@settings(max_examples=200, deadline=None)
def test_the_bar_is_the_nth_largest(values, wanted):
    scores = np.array(values, np.float32)
    known = np.sort(scores[scores > -np.inf])[::-1]
    expected = scores >= known[min(wanted, known.size) - 1] if known.size else np.zeros(scores.size, bool)
    np.testing.assert_array_equal(scores >= compiled_selection.bar_for(scores, NO_SIZES, wanted), expected)
    chosen = np.empty(scores.size, np.int32)
    count = compiled_selection.best_previews(scores, wanted, chosen)
    np.testing.assert_array_equal(chosen[:count], expected.nonzero()[0])


@given(st.integers(1, 60), st.integers(1, 500), seeds)
@settings(max_examples=100, deadline=None)
def test_groups_are_opened_until_they_hold_enough(groups, wanted, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-20, 20, groups).astype(np.float32)
    sizes = rng.integers(1, 20, groups).astype(np.int32)
    ranked = np.argsort(-scores, kind="stable")
    reached = sizes[ranked].cumsum() >= min(wanted, sizes.sum())
    bar = compiled_selection.bar_for(scores, sizes, wanted)
    np.testing.assert_array_equal(scores >= bar, scores >= scores[ranked[reached.argmax()]])


@given(st.integers(1, 100), seeds)
@settings(max_examples=50, deadline=None)
def test_levels_are_those_of_the_graphs(count, seed):
    values = np.random.default_rng(seed).standard_normal(count).astype(np.float32)
    levels = np.empty(count, np.int8)
    scale = compiled_previews.quantize(values, levels)
    assert scale == np.abs(values).max() / np.float32(127)
    np.testing.assert_array_equal(levels, np.round(values / scale))
    assert compiled_previews.sum_of(levels) == levels.astype(int).sum()


def test_equal_logits_go_by_id():
    order, positions, kept = np.array([9, 4, 7, 1]), np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)
    ids, logits = np.empty(3, np.int64), np.empty(3, np.float32)
    kernels.best_of(order, np.array([1, 2, 2, 0], np.float32), positions, kept, ids, logits)
    assert ids.tolist() == [4, 7, 9]
    assert logits.tolist() == [2, 2, 1]
