"""Compiled loops that take a context vector into whole numbers, and multiply rows of int8 with it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray

from .arrays import Ints
from .jit import compile_loop
from .vnni import LANES, LINE_BYTES, ZERO_POINT, Bytes, multiply_pair, multiply_row, prefetch

COARSE_LEVELS, FINE_LEVELS = np.float32(63), np.float32(126)  # a digit's most; how much finer the second digit is
PREFETCH_CODE_ROWS = 6  # rows that are asked for before they are needed
MIN_PEAK = np.float32(1e-30)  # as in the exporter's `quantized`

Digits = npt.NDArray[np.int8]


class DigitSteps(NamedTuple):
    """What a one of each digit stands for, and what the weights' zero point adds to sums of each."""

    coarse: np.float32
    fine: np.float32
    first: np.int32
    second: np.int32


@compile_loop
def find_peak(numbers: FloatArray) -> np.float32:
    """The largest size among `numbers` [d]."""
    peak = MIN_PEAK
    for i in range(numbers.size):
        peak = max(peak, abs(numbers[i]))
    return peak


@compile_loop
def extract_digit(numbers: FloatArray, step: np.float32, digits: Digits) -> np.int32:
    """Whole steps in `numbers` [d] into `digits`, and what is left in `numbers`; returns what the zero point adds."""
    total = np.int32(0)
    for i in range(numbers.size):
        whole = np.rint(numbers[i] / step)
        digits[i] = np.int8(whole)
        total += np.int32(digits[i])
        numbers[i] -= whole * step
    return np.int32(ZERO_POINT) * total


@compile_loop
def combine_sums(first: np.int32, second: np.int32, scale: np.float32, steps: DigitSteps) -> np.float32:
    """A product from its sums over both digits, for weights of this scale.

    The scale comes first: sums times steps are larger than what a product may be.
    """
    one, two = np.float32(first - steps.first), np.float32(second - steps.second)
    return (steps.coarse * scale) * one + (steps.fine * scale) * two


@compile_loop
def split_digits(context: FloatArray, digits: Digits) -> DigitSteps:
    """`context` [d] in two digits of int8, to 1/16,000 of its largest number; digits: [2, d or more], else zeros."""
    left = context.copy()
    coarse = np.float32(find_peak(left) / COARSE_LEVELS)
    fine = np.float32(coarse / FINE_LEVELS)
    first = extract_digit(left, coarse, digits[0, : left.size])
    return DigitSteps(coarse, fine, first, extract_digit(left, fine, digits[1, : left.size]))


@compile_loop
def project_context(
    weights: Bytes, scale: FloatArray, digits: Digits, steps: DigitSteps, projected: FloatArray
) -> None:
    """Products of `weights` [n, ., LANES, 4] and a context, times `scale` [n LANES], into `projected` [n LANES].

    The context's digits are finer than what `projected` is then rounded to unless one number is hundreds of times the
    others.
    """
    sums = np.empty(2 * LANES, np.int32)
    for block in range(len(weights)):
        multiply_pair(weights, block, digits, sums)
        for lane in range(LANES):
            own = scale[LANES * block + lane]
            projected[LANES * block + lane] = combine_sums(sums[lane], sums[LANES + lane], own, steps)


@compile_loop
def score_by_digits(
    rows: Bytes, scale: FloatArray, listed: Ints, digits: Digits, steps: DigitSteps, scores: FloatArray
) -> None:
    """Products of the `listed` of `rows` [., d or more], whole lines, and a context, times `scale`, into `scores`."""
    width, start, first = rows.shape[1], rows.ctypes.data, digits.ctypes.data
    second, lines = first + digits.shape[1], width // LINE_BYTES
    for i in range(listed.size):
        if i + PREFETCH_CODE_ROWS < listed.size:
            prefetch(start + listed[i + PREFETCH_CODE_ROWS] * width, width)
        row = start + listed[i] * width
        sums = multiply_row(row, first, lines), multiply_row(row, second, lines)
        scores[i] = combine_sums(sums[0], sums[1], scale[listed[i]], steps)
