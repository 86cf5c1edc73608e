"""Compiled loops that take a context vector into whole numbers, and multiply rows of int8 with it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray

from .arrays import Ints
from .jit import compiled
from .vnni import LANES, STEP, ZERO_POINT, Bytes, fetch, pair_products, row_product

FIRST, SECOND = np.float32(63), np.float32(126)  # a digit's most; how much finer the second digit is
AHEAD = 6  # rows that are asked for before they are needed
TINY = np.float32(1e-30)  # as in the exporter's `quantized`

Digits = npt.NDArray[np.int8]


class Steps(NamedTuple):
    """What a one of each digit stands for, and what the weights' zero point adds to sums of each."""

    coarse: np.float32
    fine: np.float32
    first: np.int32
    second: np.int32


@compiled
def peak_of(numbers: FloatArray) -> np.float32:
    """The largest size among `numbers` [d]."""
    peak = TINY
    for i in range(numbers.size):
        peak = max(peak, abs(numbers[i]))
    return peak


@compiled
def take_digits(numbers: FloatArray, step: np.float32, digits: Digits) -> np.int32:
    """Whole steps in `numbers` [d] into `digits`, and what is left in `numbers`; returns what the zero point adds."""
    total = np.int32(0)
    for i in range(numbers.size):
        whole = np.rint(numbers[i] / step)
        digits[i] = np.int8(whole)
        total += np.int32(digits[i])
        numbers[i] -= whole * step
    return np.int32(ZERO_POINT) * total


@compiled
def product_of(first: np.int32, second: np.int32, scale: np.float32, steps: Steps) -> np.float32:
    """A product from its sums over both digits, for weights of this scale.

    The scale comes first: sums times steps are larger than what a product may be.
    """
    one, two = np.float32(first - steps.first), np.float32(second - steps.second)
    return (steps.coarse * scale) * one + (steps.fine * scale) * two


@compiled
def in_digits(context: FloatArray, digits: Digits) -> Steps:
    """`context` [d] in two digits of int8, to 1/16,000 of its largest number; digits: [2, d or more], else zeros."""
    left = context.copy()
    coarse = np.float32(peak_of(left) / FIRST)
    fine = np.float32(coarse / SECOND)
    first = take_digits(left, coarse, digits[0, : left.size])
    return Steps(coarse, fine, first, take_digits(left, fine, digits[1, : left.size]))


@compiled
def project(weights: Bytes, scale: FloatArray, digits: Digits, steps: Steps, projected: FloatArray) -> None:
    """Products of `weights` [n, ., LANES, 4] and a context, times `scale` [n LANES], into `projected` [n LANES].

    The context's digits are finer than what `projected` is then rounded to unless one number is hundreds of times the
    others.
    """
    sums = np.empty(2 * LANES, np.int32)
    for block in range(len(weights)):
        pair_products(weights, block, digits, sums)
        for lane in range(LANES):
            own = scale[LANES * block + lane]
            projected[LANES * block + lane] = product_of(sums[lane], sums[LANES + lane], own, steps)


@compiled
def score_by_digits(
    rows: Bytes, scale: FloatArray, listed: Ints, digits: Digits, steps: Steps, scores: FloatArray
) -> None:
    """Products of the `listed` of `rows` [., d or more], whole lines, and a context, times `scale`, into `scores`."""
    width, start, first = rows.shape[1], rows.ctypes.data, digits.ctypes.data
    second, lines = first + digits.shape[1], width // STEP
    for i in range(listed.size):
        if i + AHEAD < listed.size:
            fetch(start + listed[i + AHEAD] * width, width)
        row = start + listed[i] * width
        sums = row_product(row, first, lines), row_product(row, second, lines)
        scores[i] = product_of(sums[0], sums[1], scale[listed[i]], steps)
