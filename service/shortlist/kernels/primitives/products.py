"""Products of bytes that compiled loops call: unsigned weights times signed levels of a context, summed in 32 bits.

They take addresses, not arrays: passing an array on costs as much as the products of a row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .jit import compile_loop
from .layout import LINE_BYTES, Bytes
from .vnni import prefetch_line, vnni_add_two_bit_scores, vnni_multiply_pair, vnni_multiply_row, vnni_score_block


@compile_loop
def prefetch(address: int, size: int) -> None:
    """Prefetch `size` bytes at an address, since rows in random order are slow because of latency, not bandwidth."""
    for line in range(0, size, LINE_BYTES):
        prefetch_line(address + line)


@compile_loop
def score_block(weights: int, levels: int, steps: int, shift: int, scale: int, scores: int) -> None:
    """Write (weights @ levels - shift) * scale of one block of uint8 weights [steps, LANES, LANE_BYTES] to `scores`.

    levels: [steps * LANE_BYTES] int8. scale, scores: [LANES] float32. All are addresses.
    """
    vnni_score_block(weights, levels, steps, shift, scale, scores)


@compile_loop
def add_two_bit_scores(weights: int, levels: int, lines: int, shift: int, scale: int, scores: int) -> None:
    """Add (2 weights @ levels - shift) * scale of one block of 2-bit weights, as of `pack_two_bits`, to `scores`.

    weights: [lines, LANES, LANE_BYTES]. levels: [lines * TWO_BIT_COLUMNS] int8. scale, scores: [LANES] float32. All are
    addresses.
    """
    vnni_add_two_bit_scores(weights, levels, lines, shift, scale, scores)


@compile_loop
def multiply_row(weights: int, levels: int, steps: int) -> np.int32:
    """Return the dot product of `steps` * LINE_BYTES bytes at two addresses: uint8 weights, int8 levels."""
    total: np.int32 = vnni_multiply_row(weights, levels, steps)
    return total


@compile_loop
def multiply_pair(weights: Bytes, block: int, contexts: npt.NDArray[np.int8], sums: npt.NDArray[np.int32]) -> None:
    """Write the products of one block of `weights` with both of two contexts to `sums` [2 LANES] int32.

    weights: [n, W / LANE_BYTES, LANES, LANE_BYTES], W / LANE_BYTES even. contexts: [2, W or more] int8. Each weight is
    loaded once.
    """
    steps, width = weights.shape[1], contexts.shape[1]
    start = contexts.ctypes.data
    vnni_multiply_pair(weights.ctypes.data + block * steps * LINE_BYTES, start, start + width, steps, sums.ctypes.data)
