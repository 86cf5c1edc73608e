"""Products of bytes that compiled loops call: unsigned weights times signed levels of a context, summed in 32 bits.

They take addresses, not arrays: passing an array on costs as much as the products of a row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .jit import compile_loop
from .layout import LINE_BYTES, Bytes
from .vnni import vnni_multiply_pair


@compile_loop
def multiply_pair(weights: Bytes, block: int, contexts: npt.NDArray[np.int8], sums: npt.NDArray[np.int32]) -> None:
    """Write the products of one block of `weights` with both of two contexts to `sums` [2 LANES] int32.

    weights: [n, W / LANE_BYTES, LANES, LANE_BYTES], W / LANE_BYTES even. contexts: [2, W or more] int8. Each weight is
    loaded once.
    """
    steps, width = weights.shape[1], contexts.shape[1]
    start = contexts.ctypes.data
    vnni_multiply_pair(weights.ctypes.data + block * steps * LINE_BYTES, start, start + width, steps, sums.ctypes.data)
