"""Arrays as arguments of the native library's functions."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Structure, addressof, c_byte, c_int64, c_void_p, cast
from typing import Any, Self

import numpy as np
import numpy.typing as npt

# A pointer argument for a writable array that is not empty, in half the time of `array.ctypes.data`.
point_at: Callable[[Any], c_byte] = c_byte.from_buffer


class RequestStruct(Structure):
    """`struct request` of kernels.h; it keeps what it points at."""

    _fields_ = [
        *((name, c_void_p) for name in ("head", "search", "lists")),
        *((name, c_int64) for name in ("k", "rows", "threads")),
    ]
    parts: Any

    @classmethod
    def make(cls, head: Any, search: Any, k: int) -> Self:
        """Of one row without lists. head, search: pointers to structs, as of `byref`; or None."""
        addresses = (None if part is None else cast(part, c_void_p).value for part in (head, search))
        request = cls(*addresses, None, k, 1, 1)
        request.parts = head, search
        return request

    def with_lists(self, lists: Structure) -> Self:
        """The request of rows with lists, a `struct lists`."""
        request = type(self).from_buffer_copy(self)
        request.lists, request.parts = addressof(lists), (self, lists)
        return request

    def for_rows(self, rows: int, threads: int) -> Self:
        """The request of so many rows, which up to so many threads share."""
        request = type(self).from_buffer_copy(self)
        request.rows, request.threads, request.parts = rows, threads, self
        return request


def get_address(array: npt.NDArray[Any] | None, dtype: npt.DTypeLike, name: str) -> int | None:
    """Return where a table begins, which has to outlive the address; None for none.

    Raises TypeError for one that a loop would misread: not contiguous, or of another dtype.
    """
    if array is None:
        return None
    if not array.flags.c_contiguous or not array.flags.aligned or array.dtype != dtype:
        raise TypeError(f"table {name} is {array.dtype}, not an array of {np.dtype(dtype)} in one piece")
    return array.ctypes.data


def check_memory(is_done: int, work: str) -> None:
    """Raise MemoryError unless a function that returns 0 for want of memory is done with its work."""
    if not is_done:
        raise MemoryError(f"there is no memory {work}: send fewer rows at once, or give the process more")
