"""Whole answers of few rows, each call by one of the native library: what a decoder asks for, step by step."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy import ndarray

from shortlist.core.filters import UNRESTRICTED, ClassFilter, IdLists, Members
from shortlist.core.results import FloatArray, IdArray, IntArray
from shortlist.runtime.parallel import ThreadedRows

from .native.arguments import RequestStruct, point_at
from .native.library import Function

ID, FLOAT, COUNT = np.dtype(np.int64), np.dtype(np.float32), np.dtype(np.int32)  # made once: a look-up takes time
ID_BYTES, FLOAT_BYTES, COUNT_BYTES = ID.itemsize, FLOAT.itemsize, COUNT.itemsize

INCOMPLETE = 2  # what a function of the library returns that has answered, but for rows that are to be completed

Answer = tuple[IdArray, FloatArray, IntArray]  # ids and log-probabilities [B, k], how many classes were scored [B]


def make_no_filter() -> ClassFilter:
    """Of rows without lists."""
    return UNRESTRICTED


class RowAnswers:
    """Answers single rows by a function of the library: (request, context, answer) -> 0 where it could not.

    head: a pointer to the struct that the function answers by. dim: d. make_search: k -> a pointer to how it looks for
    so many classes, or None. max_k: the largest k that it answers. max_rows: the most rows of a call that it answers.
    states_risk: whether `read_risk` says as much as the long way does. Threads may share it.
    """

    max_rows = 1
    states_risk = False

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
        """As a call, of rows that all have these lists, of which at least one is there; None unless it takes lists."""
        del contexts, k, allow, ban
        return None

    def answer_marked(self, contexts: npt.ArrayLike, k: int, members: Members, ban: IdLists) -> Answer | None:
        """As a call, of rows that get `members` of named sets alone; None unless it takes them."""
        del contexts, k, members, ban
        return None

    def ask(
        self,
        request: RequestStruct | None,
        contexts: npt.ArrayLike,
        make_filter: Callable[[], ClassFilter] = make_no_filter,
    ) -> Answer | None:
        """The answers to contexts [B, d] as `__call__` gives them; None where there are none.

        make_filter: gives the lists of the rows where some are to be completed: a filter takes time. So does whatever
        Python does here: a search leaves nothing of it in the near caches, and each line of code takes a microsecond.
        """
        if type(contexts) is not np.ndarray or contexts.dtype is not FLOAT or contexts.ndim != 2:
            return None
        rows, dim = contexts.shape
        if request is None or dim != self.dim or not 0 < rows <= self.max_rows:
            return None
        shape, count = (rows, request.k), rows * request.k
        start, end = count * ID_BYTES, count * (ID_BYTES + FLOAT_BYTES)
        memory = bytearray(end + rows * (COUNT_BYTES + FLOAT_BYTES))
        try:
            state = self.answer(request, contexts, memory)
        except (TypeError, ValueError):
            return None
        if not state:
            return None
        answer = ndarray(shape, ID, memory), ndarray(shape, FLOAT, memory, start), ndarray(rows, COUNT, memory, end)
        return answer if state != INCOMPLETE else self.complete(answer, contexts, request.k, make_filter())

    def answer(self, request: RequestStruct, contexts: FloatArray, memory: bytearray) -> int:
        """Write the answer to `memory`: 0 where there is none, `INCOMPLETE` where `complete` has to follow."""
        state: int = self.function(request, point_at(contexts), point_at(memory))
        return state

    def complete(self, answer: Answer, contexts: FloatArray, k: int, class_filter: ClassFilter) -> Answer | None:
        """The answer with those rows that the function left; None where nothing gives them."""
        raise NotImplementedError

    def find_request(self, k: int) -> RequestStruct | None:
        """The request for k classes, kept; None for k that is no int, or not from 1 to max_k."""
        if type(k) is not int:
            return None
        request = self.requests.get(k)
        if request is None and 1 <= k <= self.max_k:
            request = self.requests[k] = RequestStruct.make(self.head, self.make_search(k), k)
        return request

    def read_risk(self, answer: Answer) -> FloatArray:
        """The risk [B] of an answer, as `TopK` promises it; only where `states_risk`."""
        raise NotImplementedError

    def find_promise(self, k: int) -> float | None:
        """The mean P@k that answers of k classes are searched by; None where they are not searched by one."""
        del k
        return None

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
        """As in the base class, of one row or more."""
        rows = len(contexts)
        if rows == 1:
            return super().answer(request, contexts, memory)
        threads, start = self.threaded_rows.count_threads(rows), perf_counter()
        state = super().answer(request.for_rows(rows, threads), contexts, memory)
        self.threaded_rows.note((perf_counter() - start) * threads / rows)
        return state


def read_risk(answer: Answer) -> FloatArray:
    """The risk [B] that a function of the library wrote behind an answer, in the memory that its arrays share."""
    ids, logprobs, scored = answer
    return ndarray(scored.shape, FLOAT, scored.base, ids.nbytes + logprobs.nbytes + scored.nbytes)


def answer_rows(
    answers: RowAnswers,
    contexts: npt.ArrayLike,
    k: int,
    allow: IdLists,
    ban: IdLists,
    members: Members | None,
) -> Answer | None:
    """The answers to contexts [B, d] with these lists and named sets, or without.

    None where there is nothing that gives them.
    """
    if members is not None:
        return answers.answer_marked(contexts, k, members, ban) if allow is None else None
    if allow is None and ban is None:
        return answers(contexts, k)
    return answers.answer_listed(contexts, k, allow, ban)
