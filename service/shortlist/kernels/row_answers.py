"""Whole answers of single rows, each by one call of the native library: what a decoder asks for, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray, IdArray, IntArray

from .native.arguments import point_at
from .native.library import Function

ID, FLOAT, COUNT = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.int32)  # made once: a look-up takes time

Answer = tuple[IdArray, FloatArray, IntArray]  # ids and log-probabilities [1, k], how many classes were scored [1]


class RowAnswers:
    """Answers one row by a function of the library: (struct, limits, context, answer) -> whether it could.

    struct: a pointer to what the head is. dim: d. make_limits: k -> a pointer to the limits of a search. max_k: the
    largest k that it answers. Threads may share it.
    """

    def __init__(
        self, function: Function, struct: Any, dim: int, make_limits: Callable[[int], Any], max_k: int
    ) -> None:
        self.function, self.struct, self.make_limits, self.max_k = function, struct, make_limits, max_k
        self.shape = 1, dim
        self.limits: dict[int, Any] = {}

    def __call__(self, contexts: npt.ArrayLike, k: int) -> Answer | None:
        """The answer to contexts [1, d]; None unless they are a plain array of float32 and the function answers them.

        It leaves contexts that are not finite and rows that need dense or graphs to others, and cannot read an array
        with gaps or one that is read-only. The answer's arrays share one piece of memory: three allocations and
        pointers would take longer than many a search.
        """
        if type(contexts) is not np.ndarray or contexts.dtype is not FLOAT or contexts.shape != self.shape:
            return None
        limits = self.find_limits(k)
        if limits is None:
            return None
        memory = bytearray((ID.itemsize + FLOAT.itemsize) * k + COUNT.itemsize)
        try:
            is_answered = self.answer(contexts, limits, memory)
        except (TypeError, ValueError):
            return None
        if not is_answered:
            return None
        shape, start = (1, k), ID.itemsize * k
        return (
            np.ndarray(shape, ID, memory),
            np.ndarray(shape, FLOAT, memory, start),
            np.ndarray(1, COUNT, memory, start + FLOAT.itemsize * k),
        )

    def answer(self, contexts: FloatArray, limits: Any, memory: bytearray) -> bool:
        """Write the answer to `memory`; whether there is one."""
        return bool(self.function(self.struct, limits, point_at(contexts), point_at(memory)))

    def find_limits(self, k: int) -> Any:
        """A pointer to the limits of a search for k, kept; None for k that is no int, or not from 1 to max_k."""
        if type(k) is not int:
            return None
        limits = self.limits.get(k)
        if limits is None and 1 <= k <= self.max_k:
            limits = self.limits[k] = self.make_limits(k)
        return limits
