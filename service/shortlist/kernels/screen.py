"""Scorers of plan `screen` by the native library, with a screen or a gate, over weights that are mapped."""

from __future__ import annotations

from ctypes import Structure, byref, c_double, c_float, c_int64, c_void_p
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import ScreenSettings
from shortlist.core.results import FloatArray, IntArray, PlanResult, empty_result
from shortlist.runtime.parallel import ThreadedRows

from .native.arguments import get_address, point_at
from .native.library import open_kernels, require_kernels
from .primitives.arrays import as_carray
from .row_answers import RowAnswers

TABLES = "chooser", "weights", "ids", "offsets", "tail"

Index = dict[str, npt.NDArray[Any]]  # index.safetensors


class SetsStruct(Structure):
    """`struct sets` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [
        *((name, c_void_p) for name in TABLES),
        *((name, c_int64) for name in ("dim", "sets", "lines", "largest", "are_experts")),
        *((name, c_float) for name in ("logit_scale", "soft_cap")),
    ]


class LimitsStruct(Structure):
    """`struct screen_limits` of kernels.h."""

    _fields_ = [
        *((name, c_int64) for name in ("k", "probes")),
        *((name, c_double) for name in ("probe_margin", "dense_margin")),
    ]


@lru_cache(maxsize=64)
def make_limits(*limits: float) -> Any:
    """Return a pointer to the struct of k and of probes, probe_margin and dense_margin, which gates leave out."""
    return byref(LimitsStruct(*limits))


class Loops:
    """Scores rows over the sets that a screen or a gate picks for each. Threads may share it."""

    def __init__(
        self,
        tables: dict[str, npt.NDArray[Any]],
        lines: int,
        threads: int,
        are_experts: bool,
        finishing: tuple[float, float] = (1.0, 0.0),
    ) -> None:
        """Take the addresses of tables, named as the struct's fields. Raises NoLibrary.

        lines: numbers in `weights` for each class. finishing: logit scale and soft-cap, 0 for none.
        """
        self.kernels, self.threaded_rows = require_kernels(), ThreadedRows(threads)
        self.tables = tables  # must live as long as their addresses are used
        integers = "ids", "offsets"
        addresses = {
            name: get_address(table, np.int64 if name in integers else np.float32, name)
            for name, table in tables.items()
        }
        self.sets = len(tables["offsets"]) - 1
        sizes = len(tables["chooser"]), self.sets, lines, int(np.diff(tables["offsets"]).max()), are_experts
        self.struct = byref(SetsStruct(*map(addresses.get, TABLES), *sizes, *finishing))

    def make_row_answers(self, max_k: int, *settings: float) -> RowAnswers:
        """Return what answers single rows with these settings, for k up to `max_k`."""
        dim, function = len(self.tables["chooser"]), self.kernels.answer_row_of_sets
        return RowAnswers(function, self.struct, dim, lambda k: make_limits(k, *settings), max_k)

    def run(self, contexts: FloatArray, k: int, *settings: float) -> PlanResult:
        """Results of `contexts` [B, d]; several threads share them in the order of their best sets."""
        rows, result = as_carray(contexts), empty_result(len(contexts), k)
        if rows.size and k:
            arrays = result.ids, result.logits, result.log_normalizer, result.scored
            arguments = self.struct, make_limits(k, *settings), point_at(rows)
            if self.threaded_rows.threads < 2 or len(rows) < 2:
                check_memory(self.kernels.score_all_sets(*arguments, *map(point_at, arrays), len(rows)))
            else:
                self.run_by_threads(rows, *arguments, *map(point_at, arrays))
        return result

    def run_by_threads(self, rows: FloatArray, struct: Any, limits: Any, contexts: Any, *results: Any) -> None:
        """Put the rows in order by this thread, then share them."""
        scores, order = self.order_rows(rows)
        arguments = struct, limits, contexts, point_at(scores), point_at(order), *results
        self.threaded_rows(
            lambda some: check_memory(self.kernels.score_sets(*arguments, int(some[0]), int(some[-1]) + 1)),
            np.arange(len(rows)),
        )

    def order_rows(self, rows: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return scores [B, n] of the sets, and the rows [B] in the order of their best sets."""
        scores, order = np.empty((len(rows), self.sets), np.float32), np.empty(len(rows), np.int32)
        arrays = point_at(rows), len(rows), point_at(scores), point_at(order)
        check_memory(self.kernels.order_rows(self.struct, *arrays))
        return scores, order


def check_memory(is_done: int) -> None:
    if not is_done:
        raise MemoryError("there is no memory to score rows over their sets")


class ScreenLoops(Loops):
    """Scores each row over its best one or two clusters."""

    def __init__(self, bundle: Bundle, index: Index, threads: int) -> None:
        finishing = bundle.manifest.logit_scale, bundle.manifest.soft_cap or 0.0
        sets = bundle.map_array("screen_sets")
        tables = {name: index[name] for name in ("ids", "offsets", "tail")}
        tables |= {"chooser": bundle.map_array("screen_columns"), "weights": sets}
        super().__init__(tables, sets.shape[1], threads, False, finishing)

    @classmethod
    def open(cls, bundle: Bundle, index: Index, threads: int) -> Self | None:
        """Map the weights; None without a library, and where the bundle has no arrays for the loops.

        index: arrays of index.safetensors.
        """
        has_arrays = bundle.has_arrays("screen_columns", "screen_sets")
        return cls(bundle, index, threads) if has_arrays and open_kernels() is not None else None

    def score(self, contexts: FloatArray, k: int, settings: ScreenSettings, use_dense: bool) -> PlanResult:
        """The k best classes of `contexts` [B, d], k at most the smallest set's size.

        `scored` is TO_DENSE for rows that dense has to answer, TO_GRAPHS for those that open more than two clusters.
        """
        return self.run(contexts, k, *list_limits(settings, use_dense))

    def open_row_answers(self, max_k: int, settings: ScreenSettings, use_dense: bool) -> RowAnswers:
        """Return what answers single rows as `score`, but for those that dense or graphs have to answer."""
        return self.make_row_answers(max_k, *list_limits(settings, use_dense))


def list_limits(settings: ScreenSettings, use_dense: bool) -> tuple[int, float, float]:
    """Return the limits of a search but for k, in the struct's order."""
    return settings.probes, settings.probe_margin, settings.dense_margin if use_dense else 0.0


class GateLoops(Loops):
    """Scores each row over the expert that the gate picks for it."""

    def __init__(self, bundle: Bundle, index: Index, threads: int) -> None:
        tables = {"chooser": bundle.map_array("gate_columns"), "weights": bundle.map_array("gate_sets")}
        tables |= {name: index[name] for name in ("ids", "offsets")}
        super().__init__(tables, bundle.manifest.dim + 1, threads, True)

    @classmethod
    def open(cls, bundle: Bundle, index: Index, threads: int) -> Self | None:
        """Map the weights; None without a library, and where the bundle has no arrays for the loops.

        index: arrays of index.safetensors. A bundle with int8 experts has none, since graphs read single rows of those
        faster.
        """
        has_arrays = bundle.has_arrays("gate_columns", "gate_sets")
        return cls(bundle, index, threads) if has_arrays and open_kernels() is not None else None

    def score(self, contexts: FloatArray, k: int) -> PlanResult:
        """The k best classes of `contexts` [B, d], k at most the smallest expert's size."""
        return self.run(contexts, k)
