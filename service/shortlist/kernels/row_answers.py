"""Whole answers of few rows, each call by one of the native library: what a decoder asks for, step by step."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import ndarray

from shortlist.core.filters import IdLists, Members
from shortlist.core.results import FloatArray, IdArray, IntArray
from shortlist.runtime.parallel import ThreadedRows

from .native.arguments import RequestStruct, point_at
from .native.library import Function

ID, FLOAT, COUNT = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.int32)  # made once: a look-up takes time
ID_BYTES, FLOAT_BYTES, COUNT_BYTES = ID.itemsize, FLOAT.itemsize, COUNT.itemsize

Answer = tuple[IdArray, FloatArray, IntArray]  # ids and log-probabilities [B, k], how many classes were scored [B]


class RowAnswers:
    """Answers single rows by a function of the library: (request, context, answer) -> whether it could.

    head: a pointer to the struct that the function answers by. dim: d. make_search: k -> a pointer to how it looks for
    so many classes, or None. max_k: the largest k that it answers. max_rows: the most rows of a call that it answers.
    Threads may share it.
    """

    max_rows = 1

    def __init__(self, function: Function, head: Any, dim: int, make_search: Callable[[int], Any], max_k: int) -> None:
        self.function, self.head, self.make_search, self.max_k = function, head, make_search, max_k
        self.dim = dim
        self.requests: dict[int, RequestStruct] = {}

    def __call__(self, contexts: npt.ArrayLike, k: int) -> Answer | None:
        """The answers to contexts [B, d]; None unless they are a plain array of float32 and the function answers them.

        It leaves contexts that are not finite and rows that need dense or graphs to others, and cannot read an array
        with gaps, one that is read-only, or one at addresses that no float32 has. The answer's arrays share one piece
        of memory: three allocations and pointers would take longer than many a search.
        """
        return self.ask(self.find_request(k), contexts)

    def answer_listed(self, contexts: npt.ArrayLike, k: int, allow: IdLists, ban: IdLists) -> Answer | None:
        """The same of rows that all have these lists, of which at least one is there; None unless it takes lists."""
        del contexts, k, allow, ban
        return None

    def answer_marked(self, contexts: npt.ArrayLike, k: int, members: Members, ban: IdLists) -> Answer | None:
        """The same of rows that get `members` of named sets alone; None unless it takes them."""
        del contexts, k, members, ban
        return None

    def ask(self, request: RequestStruct | None, contexts: npt.ArrayLike) -> Answer | None:
        """The answers to contexts [B, d] as `__call__` gives them; None where there are none."""
        if type(contexts) is not np.ndarray or contexts.dtype is not FLOAT or contexts.ndim != 2:
            return None
        rows, dim = contexts.shape
        if request is None or dim != self.dim or not 0 < rows <= self.max_rows or not contexts.flags.aligned:
            return None
        shape, count = (rows, request.k), rows * request.k
        start, end = count * ID_BYTES, count * (ID_BYTES + FLOAT_BYTES)
        memory = bytearray(end + rows * COUNT_BYTES)
        try:
            if not self.answer(request, contexts, memory):
                return None
        except (TypeError, ValueError):
            return None
        return ndarray(shape, ID, memory), ndarray(shape, FLOAT, memory, start), ndarray(rows, COUNT, memory, end)

    def answer(self, request: RequestStruct, contexts: FloatArray, memory: bytearray) -> int:
        """Write the answer to `memory`; whether there is one."""
        is_answered: int = self.function(request, point_at(contexts), point_at(memory))
        return is_answered

    def find_request(self, k: int) -> RequestStruct | None:
        """The request for k classes, kept; None for k that is no int, or not from 1 to max_k."""
        if type(k) is not int:
            return None
        request = self.requests.get(k)
        if request is None and 1 <= k <= self.max_k:
            request = self.requests[k] = RequestStruct.make(self.head, self.make_search(k), k)
        return request

    def limit_rows(self, crossover: int | None) -> None:
        """Leave calls of `crossover` rows and more to others, the dense layer; none where there is no number."""
        if crossover is not None:
            self.max_rows = min(self.max_rows, crossover - 1)


class ManyRowAnswers(RowAnswers):
    """Answers up to `max_rows` rows by a function that takes several.

    threaded_rows: says how many threads are worth waking; they are the library's own.
    """

    def __init__(
        self,
        function: Function,
        head: Any,
        dim: int,
        make_search: Callable[[int], Any],
        max_k: int,
        max_rows: int,
        threaded_rows: ThreadedRows,
    ) -> None:
        super().__init__(function, head, dim, make_search, max_k)
        self.max_rows, self.threaded_rows = max_rows, threaded_rows

    def answer(self, request: RequestStruct, contexts: FloatArray, memory: bytearray) -> int:
        """Write the answers to `memory`; whether every row has one."""
        rows = len(contexts)
        if rows == 1:
            return super().answer(request, contexts, memory)
        threads, start = self.threaded_rows.count_threads(rows), perf_counter()
        is_answered = super().answer(request.for_rows(rows, threads), contexts, memory)
        self.threaded_rows.note((perf_counter() - start) * threads / rows)
        return is_answered


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
