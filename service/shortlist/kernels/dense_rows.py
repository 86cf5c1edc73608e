"""The k best of all logits and the normaliser, by the native library."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from time import perf_counter
from typing import Self, TypeVar

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.filters import ClassFilter, IdLists, Members
from shortlist.core.results import FloatArray, PlanResult, empty_result
from shortlist.runtime.parallel import ThreadedRows

from .exact_rows import CompiledGather
from .lists import make_struct, point_at_lists, take_list
from .native.arguments import RequestStruct, check_memory, point_at
from .native.library import open_kernels, require_kernels
from .primitives.arrays import as_carray
from .row_answers import Answer, RowAnswers

Result = TypeVar("Result")

RUN_CLASSES = 1024  # as in the library: what threads share
MAX_CACHED_BYTES = 16 << 20  # of weights that stay in the last cache; larger ones are read faster by the graph


class CompiledRanking:
    """Ranks rows of logits. Threads may share it."""

    def __init__(self, threads: int) -> None:
        """threads: that may share a call. Raises NoLibrary."""
        self.kernels, self.threads = require_kernels(), threads

    @classmethod
    def open(cls, threads: int) -> Self | None:
        """Open the loops; None without a library."""
        return None if open_kernels() is None else cls(threads)

    def rank(self, logits: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best permitted classes of `logits` [B, V], equal ones by lower id; `scored` is V.

        -1 and -inf where fewer are permitted. Logits of classes that lists exclude are overwritten.
        """
        rows, classes = logits.shape
        result = empty_result(rows, k)
        result.scored.fill(classes)
        if logits.size:
            lists = point_at_lists(class_filter, rows)
            places = point_at(result.ids), point_at(result.logits), point_at(result.log_normalizer)
            arguments = point_at(as_carray(logits)), rows, classes, lists, k, *places
            check_memory(self.kernels.rank_logits(*arguments, self.threads), "for the ranks of a row")
        return result

    def sum(self, logits: FloatArray) -> FloatArray:
        """[B] float32, the logs of the sums of exp(logits) [B, n]; -inf of none."""
        rows, classes = logits.shape
        sums = np.full(rows, -np.inf, np.float32)
        if logits.size:
            arguments = point_at(as_carray(logits)), rows, classes, None, 0, None, None, point_at(sums)
            check_memory(self.kernels.rank_logits(*arguments, self.threads), "for the ranks of a row")
        return sums


class CompiledLayer:
    """Logits of one context, by its products with the mapped rows of the layer. Threads may share it."""

    def __init__(self, rows: CompiledGather, threads: int) -> None:
        """rows: of the layer, without a soft-cap. threads: that may share a call. Raises NoLibrary."""
        self.rows, self.threaded_runs = rows, ThreadedRows(threads)
        self.function, self.table = require_kernels().score_layer, rows.table
        self.dim, self.classes = rows.struct.dim, rows.struct.classes
        self.runs = ceil(self.classes / RUN_CLASSES)

    @classmethod
    def open(cls, bundle: Bundle, threads: int) -> Self | None:
        """Map the rows of a bundle's dense layer; None without a library, and where dense.onnx is as fast or faster."""
        manifest = bundle.manifest
        is_cached = 4 * manifest.classes * manifest.dim <= MAX_CACHED_BYTES
        if manifest.reference != "dense" or manifest.soft_cap or not is_cached:
            return None
        rows = CompiledGather.open(bundle, threads)
        return None if rows is None else cls(rows, threads)

    def score(self, context: FloatArray) -> FloatArray:
        """Logits [1, V] of `context` [1, d]."""
        logits = np.empty((1, self.classes), np.float32)
        self.share(lambda threads: self.function(self.table, point_at(as_carray(context)), point_at(logits), threads))
        return logits

    def share(self, call: Callable[[int], Result]) -> Result:
        """Call `call` with as many threads as are worth waking for the layer's products, and return what it does."""
        if self.threaded_runs.threads == 1:
            return call(1)
        threads, start = self.threaded_runs.count_threads(self.runs), perf_counter()
        result = call(threads)
        self.threaded_runs.note((perf_counter() - start) * threads / self.runs)
        return result


class DenseRowAnswers(RowAnswers):
    """Answers rows, which may share lists, from their logits; nothing can be missed. Threads may share it."""

    states_risk = True

    def __init__(
        self,
        score: Callable[[FloatArray], FloatArray],
        dim: int,
        classes: int,
        max_k: int,
        max_rows: int,
        threads: int,
    ) -> None:
        """score: contexts [B, d] -> logits [B, V]. dim: d. classes: V. max_k: the largest k. max_rows: the largest B.

        threads: that may share the rows of a call. Raises NoLibrary.
        """
        super().__init__(require_kernels().answer_rows_of_logits, None, dim, no_search, max_k)
        self.score, self.classes, self.max_rows, self.threads = score, classes, max_rows, threads

    def answer(self, request: RequestStruct, contexts: FloatArray, memory: bytearray) -> int:
        """Write the best permitted classes to `memory`; 0 for a context that is not finite, or an id of no class."""
        place, rows = point_at(contexts), len(contexts)  # before products: there is no pointer to a read-only array
        logits = self.score(contexts)
        request = request if rows == 1 else request.for_rows(rows, self.threads)
        is_answered: int = self.function(request, place, self.dim, point_at(logits), self.classes, point_at(memory))
        return is_answered

    def answer_listed(self, contexts: npt.ArrayLike, k: int, allow: IdLists, ban: IdLists) -> Answer | None:
        """The answers to rows with these lists, each an array of ids or a table of one list; None for any others."""
        request = self.find_request(k)
        allowed, banned = (take_list(lists, self.classes, self.classes) for lists in (allow, ban))
        if request is None or (allowed is None) != (allow is None) or (banned is None) != (ban is None):
            return None
        return self.ask(request.with_lists(make_struct(allowed, banned)), contexts)

    def answer_marked(self, contexts: npt.ArrayLike, k: int, members: Members, ban: IdLists) -> Answer | None:
        return self.answer_listed(contexts, k, members.legal, ban)

    def read_risk(self, answer: Answer) -> FloatArray:
        return np.zeros(len(answer[0]), np.float32)


class LayerAnswers(DenseRowAnswers):
    """Answers single rows by one call, which their logits' products are part of. Threads may share it."""

    def __init__(
        self,
        layer: CompiledLayer,
        score: Callable[[FloatArray], FloatArray],
        max_k: int,
        max_rows: int,
        threads: int,
    ) -> None:
        """layer: gives the logits of single rows. The others are those of the base class. Raises NoLibrary."""
        super().__init__(score, layer.dim, layer.classes, max_k, max_rows, threads)
        self.layer, self.head, self.answer_row = layer, layer.table, require_kernels().answer_row_of_layer

    def answer(self, request: RequestStruct, contexts: FloatArray, memory: bytearray) -> int:
        if len(contexts) > 1:
            return super().answer(request, contexts, memory)
        arguments = point_at(contexts), point_at(memory)

        def call(threads: int) -> int:
            is_answered: int = self.answer_row(request if threads == 1 else request.for_rows(1, threads), *arguments)
            return is_answered

        return self.layer.share(call)


def no_search(_k: int) -> None:
    """All classes are scored, however many are asked for."""
