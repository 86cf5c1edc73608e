"""Compiled loops that split a context vector into two digits of int8.

The coarse digit is a whole number of coarse steps, -63 to 63; the fine digit is what is left, in steps 126 times finer.
Sums over the weights' zero point, `layout.WEIGHT_ZERO_POINT`, are subtracted from the products.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray

from .jit import compile_loop
from .layout import WEIGHT_ZERO_POINT

COARSE_LEVELS, FINE_LEVELS = np.float32(63), np.float32(126)  # largest coarse digit; fine steps in a coarse one
MIN_PEAK = np.float32(1e-30)  # as in the exporter's `graphs.quantized`

Digits = npt.NDArray[np.int8]


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
