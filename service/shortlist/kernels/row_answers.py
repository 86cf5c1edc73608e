"""Whole answers of few rows, each call by one of the native library: what a decoder asks for, step by step."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.core.filters import IdLists, Members
from shortlist.core.results import FloatArray, IdArray, IntArray
from shortlist.runtime.parallel import ThreadedRows

from .native.arguments import point_at
from .native.library import Function

ID, FLOAT, COUNT = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.int32)  # made once: a look-up takes time

Answer = tuple[IdArray, FloatArray, IntArray]  # ids and log-probabilities [B, k], how many classes were scored [B]


class RowAnswers:
    """Answers single rows by a function of the library: (struct, limits, context, answer) -> whether it could.

    struct: a pointer to what the head is. dim: d. make_limits: k -> a pointer to the limits of a search. max_k: the
    largest k that it answers. max_rows: the most rows of a call that it answers. Threads may share it.
    """

    max_rows = 1

    def __init__(
        self, function: Function, struct: Any, dim: int, make_limits: Callable[[int], Any], max_k: int
    ) -> None:
        self.function, self.struct, self.make_limits, self.max_k = function, struct, make_limits, max_k
        self.dim = dim
        self.limits: dict[int, Any] = {}

    def __call__(self, contexts: npt.ArrayLike, k: int) -> Answer | None:
        """The answers to contexts [B, d]; None unless they are a plain array of float32 and the function answers them.

        It leaves contexts that are not finite and rows that need dense or graphs to others, and cannot read an array
        with gaps or one that is read-only. The answer's arrays share one piece of memory: three allocations and
        pointers would take longer than many a search.
        """
        return self.search(contexts, k, self.find_limits(k))

    def answer_listed(self, contexts: npt.ArrayLike, k: int, allow: IdLists, ban: IdLists) -> Answer | None:
        """The same of rows that all have these lists, of which at least one is there; None unless it takes lists."""
        del contexts, k, allow, ban
        return None

    def answer_marked(self, contexts: npt.ArrayLike, k: int, members: Members, ban: IdLists) -> Answer | None:
        """The same of rows that get `members` of named sets alone; None unless it takes them."""
        del contexts, k, members, ban
        return None

    def search(self, contexts: npt.ArrayLike, k: int, limits: Any) -> Answer | None:
        """The answers by a search of these limits; None where there are none."""
        if type(contexts) is not np.ndarray or contexts.dtype is not FLOAT or contexts.ndim != 2:
            return None
        rows, dim = contexts.shape
        if limits is None or dim != self.dim or not 0 < rows <= self.max_rows:
            return None
        memory = bytearray(rows * ((ID.itemsize + FLOAT.itemsize) * k + COUNT.itemsize))
        try:
            is_answered = self.answer(contexts, limits, memory)
        except (TypeError, ValueError):
            return None
        if not is_answered:
            return None
        shape, start = (rows, k), rows * ID.itemsize * k
        return (
            np.ndarray(shape, ID, memory),
            np.ndarray(shape, FLOAT, memory, start),
            np.ndarray(rows, COUNT, memory, start + rows * FLOAT.itemsize * k),
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

    def limit_rows(self, crossover: int | None) -> None:
        """Leave calls of `crossover` rows and more to others, the dense layer; none where there is no number."""
        if crossover is not None:
            self.max_rows = min(self.max_rows, crossover - 1)


class ManyRowAnswers(RowAnswers):
    """Answers up to `max_rows` rows by a function that takes their number and threads too, before the answer.

    threaded_rows: says how many threads are worth waking; they are the library's own.
    """

    def __init__(
        self,
        function: Function,
        struct: Any,
        dim: int,
        make_limits: Callable[[int], Any],
        max_k: int,
        max_rows: int,
        threaded_rows: ThreadedRows,
    ) -> None:
        super().__init__(function, struct, dim, make_limits, max_k)
        self.max_rows, self.threaded_rows = max_rows, threaded_rows

    def answer(self, contexts: FloatArray, limits: Any, memory: bytearray) -> bool:
        """Write the answers to `memory`; whether every row has one."""
        rows, threaded_rows = len(contexts), self.threaded_rows
        arguments = *self.name_arguments(contexts, limits), rows
        if rows == 1 or threaded_rows.threads == 1:
            return bool(self.function(*arguments, 1, point_at(memory)))
        threads, start = threaded_rows.count_threads(rows), perf_counter()
        is_answered = self.function(*arguments, threads, point_at(memory))
        threaded_rows.note((perf_counter() - start) * threads / rows)
        return bool(is_answered)

    def name_arguments(self, contexts: FloatArray, limits: Any) -> tuple[Any, ...]:
        """What the function takes before the number of rows."""
        return self.struct, limits, point_at(contexts)


def answer_rows(
    answers: RowAnswers | None,
    contexts: npt.ArrayLike,
    k: int,
    allow: IdLists,
    ban: IdLists,
    members: Members | None,
) -> Answer | None:
    """The answers to contexts [B, d] with these lists and named sets, or without.

    None where there is nothing that gives them.
    """
    if answers is None:
        return None
    if members is not None:
        return answers.answer_marked(contexts, k, members, ban) if allow is None else None
    if allow is None and ban is None:
        return answers(contexts, k)
    return answers.answer_listed(contexts, k, allow, ban)
