"""Compiled loops over previews: groups of classes scored, the best opened, their classes previewed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .byte_products import (
    LANES,
    MOST_NIBBLE,
    STEP,
    ZERO_POINT,
    Bytes,
    add_nibble_scores,
    block_scores,
    compiled,
    fetch,
)
from .compiled_selection import LOWEST, Ints
from .result import FloatArray, IdArray

Context = npt.NDArray[np.int8]

FLOAT = 4  # bytes
BLOCKS_AHEAD = 6  # that are asked for before they are needed
LEVELS = np.float32(127)
TINY = np.float32(1e-30)  # as in the exporter's `quantized`


@compiled
def quantize(values: FloatArray, levels: Context) -> np.float32:
    """Write `values` as whole numbers -127..127; returns their scale."""
    peak = TINY
    for i in range(values.size):
        peak = max(peak, abs(values[i]))
    scale = np.float32(peak / LEVELS)
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
def score_blocks(weights: Bytes, scale: FloatArray, listed: Ints, levels: Context, scores: FloatArray) -> None:
    """Products of the `listed` blocks of `weights` [., W / 4, LANES, 4] with `levels` [W], times `scale` [., LANES]."""
    steps, shift = weights.shape[1], ZERO_POINT * sum_of(levels)
    size, start, scales = steps * STEP, weights.ctypes.data, scale.ctypes.data
    context, result = levels.ctypes.data, scores.ctypes.data
    for i in range(listed.size):
        if i + BLOCKS_AHEAD < listed.size:
            ahead = listed[i + BLOCKS_AHEAD]
            fetch(start + ahead * size, size)
            fetch(scales + ahead * LANES * FLOAT, LANES * FLOAT)
        of = scales + listed[i] * LANES * FLOAT
        block_scores(start + listed[i] * size, context, steps, shift, of, result + i * LANES * FLOAT)


@compiled
def add_nibbles(weights: Bytes, scale: FloatArray, listed: Ints, levels: Context, scores: FloatArray) -> None:
    """As `score_blocks`, added to `scores`: weights of 4 bits [., W / 8, LANES, 4], as `in_nibbles` has them."""
    lines, shift = weights.shape[1], MOST_NIBBLE * sum_of(levels)
    size, start, scales = lines * STEP, weights.ctypes.data, scale.ctypes.data
    context, result = levels.ctypes.data, scores.ctypes.data
    for i in range(listed.size):
        if i + BLOCKS_AHEAD < listed.size:
            ahead = listed[i + BLOCKS_AHEAD]
            fetch(start + ahead * size, size)
            fetch(scales + ahead * LANES * FLOAT, LANES * FLOAT)
        of = scales + listed[i] * LANES * FLOAT
        add_nibble_scores(start + listed[i] * size, context, lines, shift, of, result + i * LANES * FLOAT)


@compiled
def list_blocks(starts: IdArray, blocks: IdArray, opened: Ints, listed: Ints, at: Ints, filled: Ints) -> Any:
    """The blocks of groups that are `opened`, the position of each one's first class, and how many it has."""
    count = 0
    for group in opened:
        first, end = blocks[group], starts[group + 1]
        for block in range(first, blocks[group + 1]):
            listed[count], at[count] = block, starts[group] + LANES * (block - first)
            filled[count] = min(LANES, end - at[count])
            count += 1
    return count


@compiled
def add_bias(scores: FloatArray, bias: FloatArray, listed: Ints, filled: Ints, row_scale: np.float32) -> None:
    """Biases [., LANES] of the `listed` blocks, in units of `row_scale`; the lowest score for what fills them up."""
    for i in range(listed.size):
        start, first = LANES * i, LANES * listed[i]
        if bias.size:
            for lane in range(LANES):
                scores[start + lane] += bias[first + lane] / row_scale
        for lane in range(filled[i], LANES):
            scores[start + lane] = LOWEST
