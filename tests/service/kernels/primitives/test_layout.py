"""How classes are placed in blocks, and what lies in lanes and columns beyond them."""

import mmap

import numpy as np
import pytest
from shortlist.kernels.primitives.layout import (
    LANES,
    LARGE_PAGE_BYTES,
    LINE_BYTES,
    MIN_LARGE_BYTES,
    allocate_lines,
    join_small,
    list_first_blocks,
    pad_columns,
    pad_lanes,
    place_in_blocks,
    scatter_rows,
    shift_to_unsigned,
)

STARTS = np.array([0, 3, 19, 19, 36])  # parts of 3, 16, 0 and 17 classes


def test_each_part_has_whole_blocks_of_its_own():
    np.testing.assert_array_equal(list_first_blocks(STARTS), [0, 1, 2, 2, 4])
    lanes = [*range(3), *range(16, 32), *range(32, 49)]
    np.testing.assert_array_equal(place_in_blocks(STARTS), lanes)


def test_classes_are_at_their_places_among_zeros():
    values = np.arange(1, 73, dtype=np.int16).reshape(36, 2)
    wide = scatter_rows(values, place_in_blocks(STARTS), 4)
    assert (wide.shape, wide.dtype) == ((4 * LANES, 2), np.int16)
    np.testing.assert_array_equal(wide[wide.any(axis=1)], values)
    np.testing.assert_array_equal(wide[place_in_blocks(STARTS)], values)


@pytest.mark.parametrize(("rows", "padded"), [(0, 0), (1, 16), (16, 16), (17, 32)])
@pytest.mark.parametrize("padding", [0, -np.inf])
def test_lanes_beyond_the_last_row_have_one_number(rows, padded, padding):
    for shape in ((rows,), (rows, 3)):
        values = pad_lanes(np.ones(shape, np.float32), padding)
        assert (values.shape, values.dtype) == ((padded, *shape[1:]), np.float32)
        assert (values[:rows] == 1).all()
        assert (values[rows:] == padding).all()


@pytest.mark.parametrize(("width", "padded"), [(0, 0), (1, 4), (4, 4), (5, 8)])
def test_columns_beyond_the_last_are_zeros(width, padded):
    values = pad_columns(np.ones((2, width), np.int8), 4)
    assert (values.shape, values.dtype) == ((2, padded), np.int8)
    assert values.sum(axis=1).tolist() == [width] * 2


def test_every_int8_is_128_larger_unsigned():
    values = np.arange(-128, 128).astype(np.int8)
    np.testing.assert_array_equal(shift_to_unsigned(values), np.arange(256))
    np.testing.assert_array_equal(shift_to_unsigned(values.reshape(8, 32).T), np.arange(256).reshape(8, 32).T)


@pytest.mark.parametrize(
    ("size", "alignment"),
    [
        (1, LINE_BYTES),
        (MIN_LARGE_BYTES - 1, LINE_BYTES),
        (MIN_LARGE_BYTES, LARGE_PAGE_BYTES),
        (5 << 20, LARGE_PAGE_BYTES),
    ],
)
def test_large_arrays_begin_at_large_pages_and_small_ones_at_cache_lines(size, alignment):
    arrays = [allocate_lines((size, 1)) for _ in range(3)]
    for number, array in enumerate(arrays):
        assert array.ctypes.data % alignment == 0
        array[:] = number
    for number, array in enumerate(arrays):
        assert array.sum(dtype=np.int64) == number * size


def test_a_system_without_large_pages_gives_small_ones(monkeypatch):
    monkeypatch.delattr(mmap, "MADV_HUGEPAGE")
    array = allocate_lines((MIN_LARGE_BYTES,))
    array[:] = 7
    assert array.sum() == 7 * MIN_LARGE_BYTES


def test_small_tables_share_one_piece_of_memory():
    large = np.zeros(LARGE_PAGE_BYTES, np.uint8)
    tables = {
        "ids": np.arange(7)[::2],
        "none": None,
        "large": large,
        "scales": np.arange(6, dtype=np.float32).reshape(2, 3),
        "empty": np.empty((0, 3), np.float32),
    }
    joined = join_small(tables)
    assert list(joined) == list(tables)
    assert joined["large"] is large
    assert joined["none"] is None
    for name in ("ids", "scales", "empty"):
        np.testing.assert_array_equal(joined[name], tables[name])
        assert (joined[name].dtype, joined[name].flags.c_contiguous) == (tables[name].dtype, True)
    assert joined["scales"].ctypes.data - joined["ids"].ctypes.data == LINE_BYTES
