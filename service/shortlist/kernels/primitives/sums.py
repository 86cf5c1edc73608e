"""Products of float32 rows, summed in any order."""

from __future__ import annotations

import numpy as np

from shortlist.core.results import FloatArray

from .jit import compile_loop

SUM_FLAGS = {"reassoc", "contract", "nsz"}  # float sums in any order: else no loop over them is vectorised


def plain_dot(left: FloatArray, right: FloatArray) -> np.float32:
    """Of two vectors."""
    total = np.float32(0)
    for i in range(left.size):
        total += left[i] * right[i]
    return total


dot = compile_loop(plain_dot, fastmath=SUM_FLAGS)
