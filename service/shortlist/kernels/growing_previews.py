"""Int8 previews of some classes of a layer, to which others are appended."""

from __future__ import annotations

from math import ceil

import numpy as np

from shortlist.core.results import FloatArray, IdArray

from .exact_rows import CompiledGather
from .primitives.int8_columns import quantize_rows
from .primitives.layout import LANE_BYTES, LANES, WEIGHT_ZERO_POINT, Bytes, allocate_lines

MIN_BLOCKS = 64


class GrowingPreviews:
    """Previews of the classes [n] that were appended. One thread appends; others may read those before a number."""

    def __init__(self, rows: CompiledGather) -> None:
        """rows: exact rows of the whole layer.

        largest_norm, largest_rounding: Euclidean lengths, of the rows appended and of what rounding took from them.
        """
        self.rows, self.size = rows, 0
        self.weight, self.bias, self.padding = rows.arrays
        self.dim = self.weight.shape[1]
        self.previews, self.scale, self.shift = self.allocate(MIN_BLOCKS)
        self.largest_norm = self.largest_rounding = 0.0

    def allocate(self, blocks: int) -> tuple[Bytes, FloatArray, FloatArray]:
        """Blocks of previews of nothing: levels, and by class what a level stands for and what is added."""
        previews = allocate_lines((blocks, ceil(self.dim / LANE_BYTES), LANES, LANE_BYTES))
        previews.fill(WEIGHT_ZERO_POINT)
        return previews, np.zeros((blocks, LANES), np.float32), np.zeros((blocks, LANES), np.float32)

    def append(self, ids: IdArray) -> None:
        """Append classes [m]."""
        if not ids.size:
            return
        last = self.size + ids.size
        if last > self.scale.size:
            self.grow(ceil(last / LANES))
        vectors = self.weight[ids]
        levels, scale = quantize_rows(vectors)
        self.note_lengths(vectors, levels, scale)
        blocks, lanes = np.divmod(np.arange(self.size, last), LANES)
        self.previews[blocks, :, lanes] = levels.reshape(ids.size, -1, LANE_BYTES)
        self.scale[blocks, lanes] = scale
        for numbers in (self.bias, self.padding):
            if numbers is not None:
                self.shift[blocks, lanes] += numbers[ids]
        self.size = last

    def note_lengths(self, vectors: FloatArray, levels: Bytes, scale: FloatArray) -> None:
        """Keep the greatest lengths, of rows [m, d] and of what their levels [m, W] leave."""
        rounded = (levels[:, : self.dim].astype(np.float32) - WEIGHT_ZERO_POINT) * scale[:, None]
        self.largest_norm = max(self.largest_norm, float(np.linalg.norm(rounded, axis=1).max()))
        self.largest_rounding = max(self.largest_rounding, float(np.linalg.norm(vectors - rounded, axis=1).max()))

    def grow(self, blocks: int) -> None:
        """Make room for so many blocks and more; who reads finds what there is in the old arrays and in the new."""
        previews, scale, shift = self.allocate(2 * blocks)
        last = len(self.scale)
        previews[:last], scale[:last], shift[:last] = self.previews, self.scale, self.shift
        self.previews, self.scale, self.shift = previews, scale, shift
