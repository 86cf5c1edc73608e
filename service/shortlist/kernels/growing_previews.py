"""Int8 previews of some classes of a layer, to which others are appended: the best, and how much all weigh together."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray, IdArray

from .exact_rows import CompiledGather
from .primitives.layout import LANE_BYTES, LANES, WEIGHT_ZERO_POINT, Bytes, allocate_lines
from .screen import Loops
from .second_stage import SecondStage

MIN_BLOCKS = 64
MOST_EXACT = 256  # classes, the heaviest by their previews, whose logits are exact
MOST_BEST = 64  # of these, in order
MAX_LEVEL = 127
MIN_PEAK = 1e-30  # of a row
FLOAT_SLACK = 1.001  # float32 sums are off by far less than that of what they bound


class GrowingPreviews:
    """Previews of the classes [n] that were appended. One thread appends; others may read those before a number."""

    def __init__(self, rows: CompiledGather) -> None:
        """rows: exact rows of the whole layer.

        largest_norm, largest_rounding: Euclidean lengths, of the rows appended and of what rounding took from them.
        """
        self.rows, self.size = rows, 0
        self.weight, self.bias, self.padding = rows.arrays
        self.dim = self.weight.shape[1]
        self.projection, self.chooser = np.eye(self.dim, dtype=np.float32), np.zeros((self.dim, 1), np.float32)
        self.previews, self.scale, self.shift = self.allocate(MIN_BLOCKS)
        self.largest_norm = self.largest_rounding = 0.0
        self.latest: PreviewedClasses | None = None

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

    def bound_errors(self, contexts: FloatArray) -> FloatArray:
        """[B] how far previews of `contexts` [B, d] may be from logits, by the inequality of Cauchy and Schwarz.

        A soft cap only brings both nearer. A preview is the product of a rounded row and a rounded context, each of
        whose entries is off by at most half of a level.
        """
        lengths, peaks = np.linalg.norm(contexts, axis=1), np.abs(contexts).max(axis=1)
        rounding = peaks / np.float32(2 * MAX_LEVEL) * np.float32(np.sqrt(self.dim))
        errors: FloatArray = lengths * np.float32(self.largest_rounding) + rounding * np.float32(self.largest_norm)
        return errors * np.float32(FLOAT_SLACK * abs(self.rows.struct.logit_scale))

    def grow(self, blocks: int) -> None:
        """Make room for so many blocks and more; who reads finds what there is in the old arrays and in the new."""
        previews, scale, shift = self.allocate(2 * blocks)
        last = len(self.scale)
        previews[:last], scale[:last], shift[:last] = self.previews, self.scale, self.shift
        self.previews, self.scale, self.shift = previews, scale, shift

    def open(self, ids: IdArray) -> PreviewedClasses:
        """The first classes, which are `ids` [n], n from 1; those appended later change nothing in it."""
        latest = self.latest
        if latest is None or latest.size != ids.size:
            latest = self.latest = self.make_classes(ids)
        return latest

    def make_classes(self, ids: IdArray, without: IdArray | None = None) -> PreviewedClasses:
        """The same, made anew. without: [m] places of classes that weigh nothing, and are among no best."""
        shift = self.shift
        if without is not None:
            shift = shift[: ceil(ids.size / LANES)].copy()
            shift.reshape(-1)[without] = -np.inf
        blocks = np.array([0, ceil(ids.size / LANES)])
        stage = SecondStage(self.rows, self.projection, blocks, self.previews, self.scale, shift)
        offsets, tail = np.array([0, ids.size]), np.zeros(1, np.float32)
        tables: dict[str, npt.NDArray[Any]] = {"chooser": self.chooser, "ids": ids, "offsets": offsets, "tail": tail}
        struct = self.rows.struct
        loops = Loops(tables, self.dim, 1, False, (struct.logit_scale, struct.soft_cap), stage)
        return PreviewedClasses(loops, ids.size, self.bound_errors)


class BestClasses(NamedTuple):
    """The best by previews, with exact logits.

    ids, logits: [B, m], best first. log_sums: [B], of exp(logit) over all classes. bounds: [B], no other class has a
    logit over it.
    """

    ids: IdArray
    logits: FloatArray
    log_sums: FloatArray
    bounds: FloatArray


class PreviewedClasses:
    """`size` classes by their previews, and by exact logits of the heaviest. Threads may share it."""

    def __init__(self, loops: Loops, size: int, bound_errors: Callable[[FloatArray], FloatArray]) -> None:
        """bound_errors: contexts [B, d] -> [B], how far a preview may be from its logit."""
        self.loops, self.size, self.bound_errors = loops, size, bound_errors

    def sum(self, contexts: FloatArray) -> FloatArray:
        """[B] the log of the sum of exp(logit) over the classes, for `contexts` [B, d]."""
        return self.loops.run(contexts, 1, 1, 0.0, 0.0, MOST_EXACT).log_normalizer

    def find_best(self, contexts: FloatArray) -> BestClasses:
        """The best of the classes, at most `MOST_BEST`, for `contexts` [B, d].

        Others have smaller previews or logits than each of these, so that they are at most two errors over the least.
        """
        found = self.loops.run(contexts, min(MOST_BEST, self.size), 1, 0.0, 0.0, MOST_EXACT)
        bounds = found.logits[:, -1] + 2 * self.bound_errors(contexts)
        return BestClasses(found.ids, found.logits, found.log_normalizer, bounds)


def quantize_rows(rows: FloatArray) -> tuple[npt.NDArray[np.uint8], FloatArray]:
    """Levels [m, W] of rows [m, d], W the next multiple of LANE_BYTES, and what a level of each stands for [m]."""
    count, dim = rows.shape
    scale = np.maximum(np.abs(rows).max(axis=1, initial=0), MIN_PEAK) / np.float32(MAX_LEVEL)
    levels = np.full((count, LANE_BYTES * ceil(dim / LANE_BYTES)), WEIGHT_ZERO_POINT, np.uint8)
    levels[:, :dim] = np.rint(rows / scale[:, None]) + WEIGHT_ZERO_POINT
    return levels, scale.astype(np.float32)
