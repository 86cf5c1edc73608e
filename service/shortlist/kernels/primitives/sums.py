"""Dot products of float32, summed in any order."""

from __future__ import annotations

from functools import partial

import numpy as np

from shortlist.core.results import FloatArray

from .jit import compile_loop

SUM_FLAGS = {"reassoc", "contract", "nsz"}  # LLVM may reorder float sums: else it vectorises no loop over them


@partial(compile_loop, fastmath=SUM_FLAGS)
def dot(left: FloatArray, right: FloatArray) -> np.float32:
    """Return the dot product of two vectors [n]."""
    total = np.float32(0)
    for i in range(left.size):
        total += left[i] * right[i]
    return total
