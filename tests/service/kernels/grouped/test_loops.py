"""Compiled loops against numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba")
from shortlist.kernels.grouped import loops, previews, tables
from shortlist.kernels.primitives import digits as projection
from shortlist.kernels.primitives import layout, products, select, vnni

pytestmark = pytest.mark.slow

NO_SIZES = np.empty(0, np.int32)
seeds = st.integers(0, 1 << 32)


def address(array):
    return array.ctypes.data


def random_bytes(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 256, shape, np.uint8) for shape in shapes]


@pytest.mark.skipif(not vnni.VNNI, reason="this processor has no AVX-512 VNNI")
@given(st.integers(1, 5), st.integers(1, 40), seeds)
@settings(max_examples=50, deadline=None)
def test_products_of_bytes_are_exact(blocks, steps, seed):
    weights, context = random_bytes(seed, (16 * blocks, 4 * steps), 4 * steps)
    context = context.view(np.int8)
    truth = weights.astype(np.int64) @ context.astype(np.int64)
    laid, scale = layout.arrange_blocks(weights), np.arange(16 * blocks, dtype=np.float32)
    scores = np.empty(16, np.float32)
    for block in range(blocks):
        block_rows = np.s_[16 * block : 16 * block + 16]
        places = address(laid[block]), address(context), steps, 7, address(scale[block_rows]), address(scores)
        products.score_block(*places)
        np.testing.assert_array_equal(scores, (truth[block_rows] - 7).astype(np.float32) * scale[block_rows])
        pair = np.stack([context, context[::-1]])
        if not steps % 2:
            both = np.empty(32, np.int32)
            products.multiply_pair(laid, block, pair, both)
            expected = weights[16 * block : 16 * block + 16].astype(np.int64) @ pair.T.astype(np.int64)
            np.testing.assert_array_equal(both, expected.T.ravel())
    lines, levels = layout.pad_to_lines(weights), layout.pad_to_lines(context.view(np.uint8)[None])
    for row in range(len(weights)):
        assert address(lines[row]) % 64 == 0
        assert products.multiply_row(address(lines[row]), address(levels), lines.shape[1] // 64) == truth[row]


@pytest.mark.skipif(not vnni.VNNI, reason="this processor has no AVX-512 VNNI")
@given(st.integers(1, 5), st.integers(1, 12), seeds)
@settings(max_examples=50, deadline=None)
def test_products_of_two_bits_are_exact(blocks, lines, seed):
    rng = np.random.default_rng(seed)
    weights = (2 * rng.integers(0, 4, (16 * blocks, 16 * lines)) - 3).astype(np.int8)
    context, scale = rng.integers(-127, 128, 16 * lines).astype(np.int8), rng.random(16).astype(np.float32)
    truth, laid = weights.astype(np.int64) @ context.astype(np.int64), layout.pack_two_bits(weights)
    assert laid.nbytes == weights.size // 4
    shift = 3 * int(context.astype(np.int64).sum())
    for block in range(blocks):
        scores = np.full(16, 3, np.float32)
        places = address(laid[block]), address(context), laid.shape[1], shift, address(scale), address(scores)
        products.add_two_bit_scores(*places)
        expected = 3 + truth[16 * block : 16 * block + 16].astype(np.float32) * scale
        np.testing.assert_allclose(scores, expected, rtol=1e-6, atol=1e-3)


@given(st.lists(st.floats(-9, 9, width=16) | st.just(-np.inf), max_size=100), st.floats(-9, 9, width=16))
@settings(max_examples=100, deadline=None)
def test_scores_that_reach_a_threshold(values, threshold):
    scores, positions = np.array(values, np.float32), np.full(len(values) + 1, -7, np.int32)
    for select_scores in (select.select_reaching, select.select_one_by_one):
        count = select_scores(scores, np.float32(threshold), positions[:-1])
        np.testing.assert_array_equal(positions[:count], (scores >= np.float32(threshold)).nonzero()[0])
        assert positions[-1] == -7


@given(st.lists(st.floats(-1000, 1000, width=16) | st.just(-np.inf), min_size=1, max_size=300), st.integers(1, 320))
@settings(max_examples=200, deadline=None)
def test_the_threshold_is_the_nth_largest(values, target):
    scores = np.array(values, np.float32)
    ranked = np.sort(scores[scores > -np.inf])[::-1]
    expected = scores >= ranked[min(target, ranked.size) - 1] if ranked.size else np.zeros(scores.size, bool)
    np.testing.assert_array_equal(scores >= select.find_threshold(scores, NO_SIZES, target, 0), expected)
    positions = np.empty(scores.size, np.int32)
    count = select.select_best(scores, target, positions)
    np.testing.assert_array_equal(positions[:count], expected.nonzero()[0])


@given(st.integers(1, 60), st.integers(1, 500), seeds)
@settings(max_examples=100, deadline=None)
def test_groups_are_opened_until_they_hold_enough(groups, target, seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(-20, 20, groups).astype(np.float32)
    sizes = rng.integers(1, 20, groups).astype(np.int32)
    ranked = np.argsort(-scores, kind="stable")
    reached = sizes[ranked].cumsum() >= min(target, sizes.sum())
    threshold = select.find_threshold(scores, sizes, target, 0)
    np.testing.assert_array_equal(scores >= threshold, scores >= scores[ranked[reached.argmax()]])


@given(st.integers(1, 100), seeds)
@settings(max_examples=50, deadline=None)
def test_levels_are_those_of_the_graphs(count, seed):
    values = np.random.default_rng(seed).standard_normal(count).astype(np.float32)
    levels = np.empty(count, np.int8)
    scale = previews.quantize(values, levels)
    assert scale == np.abs(values).max() / np.float32(127)
    np.testing.assert_array_equal(levels, np.round(values / scale))
    assert previews.sum_levels(levels) == levels.astype(int).sum()


def test_equal_logits_go_by_id():
    order, positions, exact = np.array([9, 4, 7, 1]), np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)
    ids, logits = np.empty(3, np.int64), np.empty(3, np.float32)
    loops.write_best(order, np.array([1, 2, 2, 0], np.float32), positions, exact, ids, logits)
    assert ids.tolist() == [4, 7, 9]
    assert logits.tolist() == [2, 2, 1]


def test_tables_are_read_where_their_addresses_say():
    axes = {"projection": 4, "centres": 4, "block_rows": 2, "previews": 2, "codes": 2, "rows": 2}
    dtypes = {"sizes": np.int32, "firsts": np.int32, "filled": np.int32, "steps": np.int32}
    dtypes |= {"blocks": np.int64, "order": np.int64, "rows": np.float32}
    arrays = {}
    for i, name in enumerate(tables.Tables._fields):
        shape = (2, 3, 4, 5)[: axes.get(name, 1)]
        dtype = dtypes.get(name, np.uint8 if name in axes else np.float32)
        arrays[name] = np.arange(i, i + np.prod(shape)).astype(dtype).reshape(shape)
    expected = tables.Tables(**arrays)
    result = tables.read_tables(tables.list_addresses(expected))
    for name, table in arrays.items():
        read = getattr(result, name)
        assert read.dtype == table.dtype
        np.testing.assert_array_equal(read, table)
    for wrong in (arrays["reach"].astype(np.float64), np.ones(6, np.float32)[::2]):
        with pytest.raises(TypeError, match="table reach is"):
            tables.list_addresses(expected._replace(reach=wrong))


@pytest.mark.skipif(not vnni.VNNI, reason="this processor has no AVX-512 VNNI")
@given(st.integers(1, 3), st.integers(1, 70), st.sampled_from([0, 1e-3, 1, 1e30]), seeds)
@settings(max_examples=50, deadline=None)
def test_projections_are_far_finer_than_what_they_are_rounded_to(blocks, dim, size, seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(-127, 128, (16 * blocks, dim)).astype(np.int8)
    scale, context = rng.random(16 * blocks).astype(np.float32), (size * rng.standard_normal(dim)).astype(np.float32)
    wide = np.pad(codes.astype(np.int16), ((0, 0), (0, -dim % 8))) + 128
    digits, projected = np.zeros((2, wide.shape[1]), np.int8), np.empty(16 * blocks, np.float32)
    laid = layout.arrange_blocks(wide.astype(np.uint8))
    steps = projection.split_digits(context, digits)
    projection.project_context(laid, scale, digits, steps, projected)
    truth = codes.astype(np.float64) @ context.astype(np.float64) * scale
    step = np.abs(context).max() / 63 / 126
    assert (np.abs(projected - truth) <= scale * 127 * dim * step + 1e-5 * np.abs(truth) + 1e-20).all()


@pytest.mark.skipif(not vnni.VNNI, reason="this processor has no AVX-512 VNNI")
@given(st.integers(1, 40), st.integers(1, 150), st.sampled_from([0, 1, 100, 1000]), seeds)
@settings(max_examples=50, deadline=None)
def test_one_large_number_leaves_the_others_their_digits(rows, dim, size, seed):
    rng = np.random.default_rng(seed)
    codes, context = rng.integers(-127, 128, (rows, dim)), rng.standard_normal(dim).astype(np.float32)
    context[rng.integers(dim)] *= size
    scale, row_ids = rng.random(rows).astype(np.float32), rng.integers(0, rows, rng.integers(1, 60)).astype(np.int32)
    unsigned = layout.pad_to_lines((codes + 128).astype(np.uint8))
    digits, scores = np.zeros((2, unsigned.shape[1] + 64), np.int8), np.empty(row_ids.size, np.float32)
    steps = projection.split_digits(context, digits)
    projection.score_by_digits(unsigned, scale, row_ids, digits, steps, scores)
    truth = (codes @ context.astype(np.float64) * scale)[row_ids]
    step = np.abs(context).max() / 63 / 126
    assert (np.abs(scores - truth) <= scale[row_ids] * 127 * dim * step / 2 + 1e-5 * np.abs(truth) + 1e-20).all()


@pytest.mark.skipif(not vnni.VNNI, reason="this processor has no AVX-512 VNNI")
@given(st.integers(1, 40), st.integers(1, 3), seeds)
@settings(max_examples=50, deadline=None)
def test_rows_and_blocks_of_some_ids_are_scored(rows, lines, seed):
    rng = np.random.default_rng(seed)
    codes, levels = rng.integers(-127, 128, (rows, 64 * lines)), rng.integers(-127, 128, 64 * lines + 5).astype(np.int8)
    scale = rng.random(rows).astype(np.float32)
    row_ids = rng.integers(0, rows, rng.integers(1, 60)).astype(np.int32)
    scores, truth = np.empty(row_ids.size, np.float32), codes @ levels[: 64 * lines].astype(np.int64)
    unsigned = layout.pad_to_lines((codes + 128).astype(np.uint8))
    previews.score_block_rows(unsigned, scale, row_ids, levels, scores)
    np.testing.assert_array_equal(scores, truth[row_ids].astype(np.float32) * scale[row_ids])


@pytest.mark.skipif(not vnni.VNNI, reason="this processor has no AVX-512 VNNI")
@pytest.mark.parametrize("fine_columns", [0, 16, 48])
def test_previews_are_both_products_together(fine_columns):
    rng = np.random.default_rng(fine_columns)
    wide, fine = rng.integers(-127, 128, (64, 8)), 2 * rng.integers(0, 4, (64, fine_columns)) - 3
    scales, levels = rng.random((2, 64)).astype(np.float32), rng.integers(-127, 128, 8 + fine_columns).astype(np.int8)
    first = layout.arrange_blocks((wide + 128).astype(np.uint8))
    others = layout.pack_two_bits(fine.astype(np.int8))
    records = layout.arrange_records(first, scales[0], others, scales[1])
    row_ids, steps = np.array([3, 1], np.int32), np.array([first.shape[1], others.shape[1]], np.int32)
    scores = np.empty(32, np.float32)
    previews.score_previews(records, steps, row_ids, levels, scores)
    truth = wide @ levels[:8].astype(int) * scales[0] + fine @ levels[8:].astype(int) * scales[1]
    np.testing.assert_allclose(scores, truth.reshape(4, 16)[row_ids].ravel(), rtol=1e-5, atol=1e-2)
