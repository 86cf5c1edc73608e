"""Compiled loops over centres and previews: scores of groups, of blocks, and of the classes of some blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray
from shortlist.kernels.primitives.arrays import FLOAT_BYTES, Ints
from shortlist.kernels.primitives.digits import find_peak
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.select import LOWEST_SCORE
from shortlist.kernels.primitives.vnni import (
    LANE_BYTES,
    LANES,
    LINE_BYTES,
    TWO_BIT_MAX,
    ZERO_POINT,
    Bytes,
    add_two_bit_scores,
    multiply_row,
    prefetch,
    score_block,
)

Levels = npt.NDArray[np.int8]

PREFETCH_BLOCKS, PREFETCH_BLOCK_ROWS = 4, 12  # that are asked for before they are needed
MAX_LEVEL = np.float32(127)


@compile_loop
def quantize(values: FloatArray, levels: Levels) -> np.float32:
    """Write `values` as whole numbers -127..127; returns their scale."""
    scale = np.float32(find_peak(values) / MAX_LEVEL)
    for i in range(values.size):
        levels[i] = np.int8(np.rint(values[i] / scale))
    return scale


@compile_loop
def sum_levels(levels: Levels) -> np.int32:
    """Their sum; `ZERO_POINT` times that is what products with weights around it have too much."""
    total = np.int32(0)
    for i in range(levels.size):
        total += np.int32(levels[i])
    return total


@compile_loop
def score_centres(weights: Bytes, scale: FloatArray, levels: Levels, scores: FloatArray) -> None:
    """Products of all `weights` [n, W / 4, LANES, 4] with the first of `levels`, times `scale` [n, LANES]."""
    steps, start, scales = weights.shape[1], weights.ctypes.data, scale.ctypes.data
    shift = ZERO_POINT * sum_levels(levels[: steps * LANE_BYTES])
    context, result, line = levels.ctypes.data, scores.ctypes.data, LANES * FLOAT_BYTES
    for i in range(len(weights)):
        score_block(start + i * steps * LINE_BYTES, context, steps, shift, scales + i * line, result + i * line)


@compile_loop
def score_previews(previews: Bytes, steps: Ints, listed: Ints, levels: Levels, scores: FloatArray) -> None:
    """Products of the `listed` of `previews` [n, .], as `in_records` lays them, with `levels`, into `scores`.

    steps: [2], lines of a block in int8 and in 2 bits.
    """
    size, start, context, result = previews.shape[1], previews.ctypes.data, levels.ctypes.data, scores.ctypes.data
    wide, fine = steps[0], steps[1]
    shift, fine_shift = (
        ZERO_POINT * sum_levels(levels[: wide * LANE_BYTES]),
        TWO_BIT_MAX * sum_levels(levels[wide * LANE_BYTES :]),
    )
    for i in range(listed.size):
        if i + PREFETCH_BLOCKS < listed.size:
            prefetch(start + listed[i + PREFETCH_BLOCKS] * size, size)
        scales, place = start + listed[i] * size, result + i * LANES * FLOAT_BYTES
        weights = scales + 2 * LINE_BYTES
        score_block(weights, context, wide, shift, scales, place)
        if fine:
            add_two_bit_scores(
                weights + wide * LINE_BYTES, context + wide * LANE_BYTES, fine, fine_shift, scales + LINE_BYTES, place
            )


@compile_loop
def score_block_rows(rows: Bytes, scale: FloatArray, listed: Ints, levels: Levels, scores: FloatArray) -> None:
    """Products of the `listed` of `rows` [., W], whole lines, with the first of `levels`, times `scale` [.]."""
    width, start, context = rows.shape[1], rows.ctypes.data, levels.ctypes.data
    shift = ZERO_POINT * sum_levels(levels[:width])
    for i in range(listed.size):
        if i + PREFETCH_BLOCK_ROWS < listed.size:
            prefetch(start + listed[i + PREFETCH_BLOCK_ROWS] * width, width)
        product = multiply_row(start + listed[i] * width, context, width // LINE_BYTES) - shift
        scores[i] = np.float32(product) * scale[listed[i]]


@compile_loop
def add_bias(scores: FloatArray, bias: FloatArray, listed: Ints, filled: Ints, row_scale: np.float32) -> None:
    """Add biases [., LANES] of the `listed` blocks, in units of `row_scale`; the lowest score in lanes not filled."""
    for i in range(listed.size):
        start, first = LANES * i, LANES * listed[i]
        if bias.size:
            for lane in range(LANES):
                scores[start + lane] += bias[first + lane] / row_scale
        for lane in range(filled[listed[i]], LANES):
            scores[start + lane] = LOWEST_SCORE
