"""Columns in int8: what their levels stand for, and how they are laid out."""

import numpy as np
import pytest
from shortlist.kernels.primitives.int8_columns import Int8Columns, quantize_rows
from shortlist.kernels.primitives.layout import LANES, WEIGHT_ZERO_POINT


@pytest.mark.parametrize(("dim", "count"), [(1, 1), (7, 16), (30, 17)])
def test_levels_stand_for_each_column_to_half_of_one(dim, count):
    matrix = np.random.default_rng(0).standard_normal((dim, count)).astype(np.float32)
    columns = Int8Columns(matrix)
    assert columns.dequantize().shape == (count, dim)
    assert (abs(columns.dequantize() - matrix.T) <= 0.5001 * columns.scale[:count, None]).all()


def test_lanes_without_a_column_and_rows_beyond_the_last_are_zeros():
    columns = Int8Columns(np.ones((6, 17), np.float32))
    assert columns.weights.shape[:2] == (2, 2)
    assert columns.scale.size == 2 * LANES
    assert not columns.scale[17:].any()
    assert (columns.weights[1, :, 1:] == WEIGHT_ZERO_POINT).all()
    assert (columns.weights[:, 1, :, 2:] == WEIGHT_ZERO_POINT).all()


def test_rows_of_zeros_have_levels_of_zero():
    levels, scale = quantize_rows(np.zeros((2, 5), np.float32))
    assert (levels == WEIGHT_ZERO_POINT).all()
    assert (scale > 0).all()
