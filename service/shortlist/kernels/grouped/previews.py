"""Compiled loops over centres and previews: scores of groups, of blocks, and of the classes of some blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray
from shortlist.kernels.primitives.arrays import FLOAT_BYTES, Ints
from shortlist.kernels.primitives.digits import find_peak
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.layout import LANE_BYTES, LANES, LINE_BYTES, TWO_BIT_MAX, WEIGHT_ZERO_POINT, Bytes
from shortlist.kernels.primitives.products import add_two_bit_scores, multiply_row, prefetch, score_block
from shortlist.kernels.primitives.select import LOWEST_SCORE

Levels = npt.NDArray[np.int8]

PREFETCH_BLOCKS, PREFETCH_BLOCK_ROWS = 4, 12  # how many ahead of the current one
MAX_LEVEL = np.float32(127)  # a context's largest number in whole numbers


@compile_loop
def quantize(values: FloatArray, levels: Levels) -> np.float32:
    """Write `values` [n] as whole numbers -127 to 127 to `levels` [n]; returns what a level of 1 stands for."""
    scale = np.float32(find_peak(values) / MAX_LEVEL)
    for i in range(values.size):
        levels[i] = np.int8(np.rint(values[i] / scale))
    return scale


@compile_loop
def sum_levels(levels: Levels) -> np.int32:
    """Return the sum of `levels` [n]; products with unsigned weights are too large by WEIGHT_ZERO_POINT times it."""
    total = np.int32(0)
    for i in range(levels.size):
        total += np.int32(levels[i])
    return total


@compile_loop
def score_centres(weights: Bytes, scale: FloatArray, levels: Levels, scores: FloatArray) -> None:
    """Write products of `weights` [n, W / 4, LANES, 4] and W of `levels`, times `scale`, to `scores` [n LANES]."""
    steps, start, scales = weights.shape[1], weights.ctypes.data, scale.ctypes.data
    shift = WEIGHT_ZERO_POINT * sum_levels(levels[: steps * LANE_BYTES])
    context, result, line = levels.ctypes.data, scores.ctypes.data, LANES * FLOAT_BYTES
    for i in range(len(weights)):
        score_block(start + i * steps * LINE_BYTES, context, steps, shift, scales + i * line, result + i * line)


@compile_loop
def score_previews(previews: Bytes, steps: Ints, block_ids: Ints, levels: Levels, scores: FloatArray) -> None:
    """Write the products of some blocks of `previews` [n, .], as of `arrange_records`, with `levels` to `scores`.

    block_ids: [m]. scores: [m LANES]. steps: [2], lines of a block in int8 and in 2 bits.
    """
    size, start, context, result = previews.shape[1], previews.ctypes.data, levels.ctypes.data, scores.ctypes.data
    wide, fine = steps[0], steps[1]
    shift, fine_shift = (
        WEIGHT_ZERO_POINT * sum_levels(levels[: wide * LANE_BYTES]),
        TWO_BIT_MAX * sum_levels(levels[wide * LANE_BYTES :]),
    )
    for i in range(block_ids.size):
        if i + PREFETCH_BLOCKS < block_ids.size:
            prefetch(start + block_ids[i + PREFETCH_BLOCKS] * size, size)
        scales, place = start + block_ids[i] * size, result + i * LANES * FLOAT_BYTES
        weights = scales + 2 * LINE_BYTES
        score_block(weights, context, wide, shift, scales, place)
        if fine:
            add_two_bit_scores(
                weights + wide * LINE_BYTES, context + wide * LANE_BYTES, fine, fine_shift, scales + LINE_BYTES, place
            )


@compile_loop
def score_block_rows(rows: Bytes, scale: FloatArray, block_ids: Ints, levels: Levels, scores: FloatArray) -> None:
    """Write products of `rows` [n, W] at `block_ids` [m] and W of `levels`, times `scale` [n], to `scores` [m]."""
    width, start, context = rows.shape[1], rows.ctypes.data, levels.ctypes.data
    shift = WEIGHT_ZERO_POINT * sum_levels(levels[:width])
    for i in range(block_ids.size):
        if i + PREFETCH_BLOCK_ROWS < block_ids.size:
            prefetch(start + block_ids[i + PREFETCH_BLOCK_ROWS] * width, width)
        product = multiply_row(start + block_ids[i] * width, context, width // LINE_BYTES) - shift
        scores[i] = np.float32(product) * scale[block_ids[i]]


@compile_loop
def add_bias(scores: FloatArray, bias: FloatArray, block_ids: Ints, filled: Ints, row_scale: np.float32) -> None:
    """Add the biases of the blocks `block_ids` [m] to `scores` [m LANES], in units of `row_scale`.

    bias: [n LANES] or empty. filled: [n], how many lanes of a block hold classes; the others get -inf.
    """
    for i in range(block_ids.size):
        start, first = LANES * i, LANES * block_ids[i]
        if bias.size:
            for lane in range(LANES):
                scores[start + lane] += bias[first + lane] / row_scale
        for lane in range(filled[block_ids[i]], LANES):
            scores[start + lane] = LOWEST_SCORE
