"""Arrays as arguments of the native library's functions."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_byte
from typing import Any

import numpy as np
import numpy.typing as npt

# A pointer argument for a writable array that is not empty, in half the time of `array.ctypes.data`.
point_at: Callable[[Any], c_byte] = c_byte.from_buffer


def get_address(array: npt.NDArray[Any] | None, dtype: npt.DTypeLike, name: str) -> int | None:
    """Return where a table begins, which has to outlive the address; None for none.

    Raises TypeError for one that a loop would misread: not contiguous, or of another dtype.
    """
    if array is None:
        return None
    if not array.flags.c_contiguous or not array.flags.aligned or array.dtype != dtype:
        raise TypeError(f"table {name} is {array.dtype}, not an array of {np.dtype(dtype)} in one piece")
    return array.ctypes.data
