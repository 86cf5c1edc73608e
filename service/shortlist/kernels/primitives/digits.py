"""Compiled loops that split a context vector into two digits of int8, and multiply rows of int8 with both.

The coarse digit is a whole number of coarse steps, -63 to 63; the fine digit is what is left, in steps 126 times finer.
Sums over the weights' zero point, `layout.WEIGHT_ZERO_POINT`, are subtracted from the products.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray

from .arrays import Ints
from .jit import compile_loop
from .layout import LANES, LINE_BYTES, WEIGHT_ZERO_POINT, Bytes
from .products import multiply_pair, multiply_row, prefetch

COARSE_LEVELS, FINE_LEVELS = np.float32(63), np.float32(126)  # largest coarse digit; fine steps in a coarse one
PREFETCH_CODE_ROWS = 6  # how many rows ahead of the current one
MIN_PEAK = np.float32(1e-30)  # as in the exporter's `graphs.quantized`

Digits = npt.NDArray[np.int8]


class DigitSteps(NamedTuple):
    """What a 1 of each digit stands for, and what the weights' zero point adds to the sums over each digit."""

    coarse: np.float32
    fine: np.float32
    first: np.int32
    second: np.int32


@compile_loop
def find_peak(numbers: FloatArray) -> np.float32:
    """Return the largest absolute value of `numbers` [d], at least `MIN_PEAK`."""
    peak = MIN_PEAK
    for i in range(numbers.size):
        peak = max(peak, abs(numbers[i]))
    return peak


@compile_loop
def extract_digit(numbers: FloatArray, step: np.float32, digits: Digits) -> np.int32:
    """Write how many whole steps are in `numbers` [d] to `digits`, and leave the rest in `numbers`.

    Returns what the zero point adds to a sum over these digits.
    """
    total = np.int32(0)
    for i in range(numbers.size):
        whole = np.rint(numbers[i] / step)
        digits[i] = np.int8(whole)
        total += np.int32(digits[i])
        numbers[i] -= whole * step
    return np.int32(WEIGHT_ZERO_POINT) * total


@compile_loop
def combine_sums(first: np.int32, second: np.int32, scale: np.float32, steps: DigitSteps) -> np.float32:
    """Combine the sums over both digits into one product, for weights of this scale.

    Steps are multiplied by the scale first, since sums times steps could overflow where the product does not.
    """
    coarse, fine = np.float32(first - steps.first), np.float32(second - steps.second)
    return (steps.coarse * scale) * coarse + (steps.fine * scale) * fine


@compile_loop
def split_digits(context: FloatArray, digits: Digits) -> DigitSteps:
    """Write `context` [d] to two `digits` [2, d or more], to 1/16,000 of its largest number; the rest stays zero."""
    left = context.copy()
    coarse = np.float32(find_peak(left) / COARSE_LEVELS)
    fine = np.float32(coarse / FINE_LEVELS)
    first = extract_digit(left, coarse, digits[0, : left.size])
    return DigitSteps(coarse, fine, first, extract_digit(left, fine, digits[1, : left.size]))


@compile_loop
def project_context(
    weights: Bytes, scale: FloatArray, digits: Digits, steps: DigitSteps, projected: FloatArray
) -> None:
    """Write the products of `weights` [n, ., LANES, 4] and a context, times `scale` [n LANES], to `projected`.

    The digits are finer than the levels that `projected` is rounded to later, unless one number of the context is
    hundreds of times the others.
    """
    sums = np.empty(2 * LANES, np.int32)
    for block in range(len(weights)):
        multiply_pair(weights, block, digits, sums)
        for lane in range(LANES):
            i = LANES * block + lane
            projected[i] = combine_sums(sums[lane], sums[LANES + lane], scale[i], steps)


@compile_loop
def score_by_digits(
    rows: Bytes, scale: FloatArray, positions: Ints, digits: Digits, steps: DigitSteps, scores: FloatArray
) -> None:
    """Write products of `rows` [V, d or more] at `positions` [n] and a context, times `scale` [V], to `scores` [n]."""
    width, start, first = rows.shape[1], rows.ctypes.data, digits.ctypes.data
    second, lines = first + digits.shape[1], width // LINE_BYTES
    for i in range(positions.size):
        if i + PREFETCH_CODE_ROWS < positions.size:
            prefetch(start + positions[i + PREFETCH_CODE_ROWS] * width, width)
        row = start + positions[i] * width
        sums = multiply_row(row, first, lines), multiply_row(row, second, lines)
        scores[i] = combine_sums(sums[0], sums[1], scale[positions[i]], steps)
