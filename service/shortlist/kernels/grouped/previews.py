"""Compiled loops over centres and previews: scores of groups, of blocks, and of the classes of some blocks."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray
from shortlist.kernels.primitives.arrays import FLOAT, Ints
from shortlist.kernels.primitives.digits import peak_of
from shortlist.kernels.primitives.jit import compiled
from shortlist.kernels.primitives.select import LOWEST
from shortlist.kernels.primitives.vnni import (
    BYTES,
    LANES,
    MOST,
    STEP,
    ZERO_POINT,
    Bytes,
    add_two_bit_scores,
    block_scores,
    fetch,
    row_product,
)

Context = npt.NDArray[np.int8]

BLOCKS_AHEAD, ROWS_AHEAD = 4, 12  # that are asked for before they are needed
LEVELS = np.float32(127)


@compiled
def quantize(values: FloatArray, levels: Context) -> np.float32:
    """Write `values` as whole numbers -127..127; returns their scale."""
    scale = np.float32(peak_of(values) / LEVELS)
    for i in range(values.size):
        levels[i] = np.int8(np.rint(values[i] / scale))
    return scale


@compiled
def sum_of(levels: Context) -> np.int32:
    """Their sum; `ZERO_POINT` times that is what products with weights around it have too much."""
    total = np.int32(0)
    for i in range(levels.size):
        total += np.int32(levels[i])
    return total


@compiled
def score_blocks(weights: Bytes, scale: FloatArray, levels: Context, scores: FloatArray) -> None:
    """Products of all `weights` [n, W / 4, LANES, 4] with the first of `levels`, times `scale` [n, LANES]."""
    steps, start, scales = weights.shape[1], weights.ctypes.data, scale.ctypes.data
    shift = ZERO_POINT * sum_of(levels[: steps * BYTES])
    context, result, line = levels.ctypes.data, scores.ctypes.data, LANES * FLOAT
    for i in range(len(weights)):
        block_scores(start + i * steps * STEP, context, steps, shift, scales + i * line, result + i * line)


@compiled
def preview_blocks(previews: Bytes, steps: Ints, listed: Ints, levels: Context, scores: FloatArray) -> None:
    """Products of the `listed` of `previews` [n, .], as `in_records` lays them, with `levels`, into `scores`.

    steps: [2], lines of a block in int8 and in 2 bits.
    """
    size, start, context, result = previews.shape[1], previews.ctypes.data, levels.ctypes.data, scores.ctypes.data
    wide, fine = steps[0], steps[1]
    shift, fine_shift = ZERO_POINT * sum_of(levels[: wide * BYTES]), MOST * sum_of(levels[wide * BYTES :])
    for i in range(listed.size):
        if i + BLOCKS_AHEAD < listed.size:
            fetch(start + listed[i + BLOCKS_AHEAD] * size, size)
        scales, place = start + listed[i] * size, result + i * LANES * FLOAT
        weights = scales + 2 * STEP
        block_scores(weights, context, wide, shift, scales, place)
        if fine:
            add_two_bit_scores(weights + wide * STEP, context + wide * BYTES, fine, fine_shift, scales + STEP, place)


@compiled
def score_block_rows(rows: Bytes, scale: FloatArray, listed: Ints, levels: Context, scores: FloatArray) -> None:
    """Products of the `listed` of `rows` [., W], whole lines, with the first of `levels`, times `scale` [.]."""
    width, start, context = rows.shape[1], rows.ctypes.data, levels.ctypes.data
    shift = ZERO_POINT * sum_of(levels[:width])
    for i in range(listed.size):
        if i + ROWS_AHEAD < listed.size:
            fetch(start + listed[i + ROWS_AHEAD] * width, width)
        product = row_product(start + listed[i] * width, context, width // STEP) - shift
        scores[i] = np.float32(product) * scale[listed[i]]


@compiled
def add_bias(scores: FloatArray, bias: FloatArray, listed: Ints, filled: Ints, row_scale: np.float32) -> None:
    """Add biases [., LANES] of the `listed` blocks, in units of `row_scale`; the lowest score in lanes not filled."""
    for i in range(listed.size):
        start, first = LANES * i, LANES * listed[i]
        if bias.size:
            for lane in range(LANES):
                scores[start + lane] += bias[first + lane] / row_scale
        for lane in range(filled[listed[i]], LANES):
            scores[start + lane] = LOWEST
