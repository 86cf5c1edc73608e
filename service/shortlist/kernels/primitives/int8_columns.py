"""A float matrix by column in int8, as compiled loops multiply it with contexts in two digits."""

from __future__ import annotations

from ctypes import Structure, c_int64, c_void_p

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray
from shortlist.kernels.native.arguments import get_address

from .layout import LANE_BYTES, WEIGHT_ZERO_POINT, Bytes, arrange_blocks, pad_lanes

MAX_LEVEL = 127
MIN_PEAK = 1e-30  # of a column


class ColumnsStruct(Structure):
    """`struct int8_columns` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [("weights", c_void_p), ("scale", c_void_p), ("blocks", c_int64), ("lines", c_int64)]


class Int8Columns:
    """The columns of a matrix, each rounded to whole numbers of -127 to 127 of its own scale."""

    def __init__(self, matrix: FloatArray) -> None:
        """matrix: [d, n]. struct: of the columns, lives as long as this."""
        self.shape = matrix.shape
        levels, scale = quantize_rows(np.ascontiguousarray(matrix.T))
        self.weights = arrange_blocks(pad_lanes(levels, WEIGHT_ZERO_POINT))
        self.scale = pad_lanes(scale)
        self.struct = ColumnsStruct(
            get_address(self.weights, np.uint8, "weights"),
            get_address(self.scale, np.float32, "scale"),
            *self.weights.shape[:2],
        )

    def dequantize(self) -> npt.NDArray[np.float64]:
        """The columns [n, d] that the levels stand for."""
        rows, count = self.shape
        levels = self.weights.transpose(0, 2, 1, 3).reshape(self.scale.size, -1)[:count, :rows]
        return (levels.astype(np.float64) - WEIGHT_ZERO_POINT) * self.scale[:count, None].astype(np.float64)


def quantize_rows(rows: FloatArray) -> tuple[Bytes, FloatArray]:
    """Levels [m, W] of rows [m, d], W the next multiple of LANE_BYTES, and what a level of each stands for [m]."""
    count, dim = rows.shape
    scale = np.maximum(np.abs(rows).max(axis=1, initial=0), MIN_PEAK) / np.float32(MAX_LEVEL)
    levels = np.full((count, LANE_BYTES * -(-dim // LANE_BYTES)), WEIGHT_ZERO_POINT, np.uint8)
    levels[:, :dim] = np.rint(rows / scale[:, None]) + WEIGHT_ZERO_POINT
    return levels, scale.astype(np.float32)
