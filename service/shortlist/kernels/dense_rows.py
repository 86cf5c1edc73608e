"""The k best of all logits and the normaliser, by the native library."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from time import perf_counter
from typing import Self

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, PlanResult, empty_result
from shortlist.runtime.parallel import ThreadedRows

from .exact_rows import CompiledGather
from .lists import point_at_lists
from .native.arguments import RequestStruct, check_memory, point_at
from .native.library import open_kernels, require_kernels
from .primitives.arrays import as_carray
from .row_answers import RowAnswers

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


class DenseRowAnswers(RowAnswers):
    """Answers one row from its logits: `score`, contexts [1, d] -> [1, V]. Threads may share it."""

    def __init__(self, score: Callable[[FloatArray], FloatArray], dim: int, max_k: int) -> None:
        """dim: d. max_k: the largest k that it answers. Raises NoLibrary."""
        super().__init__(require_kernels().answer_row_of_logits, None, dim, no_search, max_k)
        self.score = score

    def answer(self, request: RequestStruct, contexts: FloatArray, memory: bytearray) -> int:
        """Write the best classes of all to `memory`; 0 for a context that is not finite."""
        context, logits = point_at(contexts), self.score(contexts)
        dim, classes = self.dim, logits.shape[1]
        is_answered: int = self.function(context, dim, point_at(logits), classes, request.k, point_at(memory))
        return is_answered


class LayerAnswers(RowAnswers):
    """Answers one row by its products with the mapped rows of the layer. Threads may share it."""

    def __init__(self, layer: CompiledGather, max_k: int, threads: int) -> None:
        """layer: without a soft-cap. threads: that may share a call. Raises NoLibrary."""
        table = layer.struct
        super().__init__(require_kernels().answer_row_of_layer, layer.table, table.dim, no_search, max_k)
        self.layer, self.threaded_runs = layer, ThreadedRows(threads)
        self.runs = ceil(table.classes / RUN_CLASSES)

    @classmethod
    def open(cls, bundle: Bundle, threads: int) -> Self | None:
        """Map the rows of a bundle's dense layer; None without a library, and where dense.onnx is as fast or faster."""
        manifest = bundle.manifest
        is_cached = 4 * manifest.classes * manifest.dim <= MAX_CACHED_BYTES
        if manifest.reference != "dense" or manifest.soft_cap or not is_cached:
            return None
        layer = CompiledGather.open(bundle, threads)
        return None if layer is None else cls(layer, manifest.max_k, threads)

    def answer(self, request: RequestStruct, contexts: FloatArray, memory: bytearray) -> int:
        """Write the best classes of all to `memory`; 0 where there is no answer."""
        if self.threaded_runs.threads == 1:
            return super().answer(request, contexts, memory)
        threads, start = self.threaded_runs.count_threads(self.runs), perf_counter()
        is_answered = super().answer(request.for_rows(1, threads), contexts, memory)
        self.threaded_runs.note((perf_counter() - start) * threads / self.runs)
        return is_answered


def no_search(_k: int) -> None:
    """All classes are scored, however many are asked for."""
