"""Scorers of plan `screen` by the native library, with a screen or a gate, over weights that are mapped."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import Structure, byref, c_double, c_float, c_int64, c_void_p, cast
from functools import lru_cache
from typing import Any, Self

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import ScreenSettings
from shortlist.core.results import FloatArray, IntArray, PlanResult, empty_result
from shortlist.runtime.parallel import ThreadedRows

from .exact_rows import CompiledGather
from .native.arguments import check_memory, get_address, point_at
from .native.library import open_kernels, require_kernels
from .primitives.arrays import Arrays, as_carray
from .primitives.int8_columns import ColumnsStruct, Int8Columns
from .primitives.layout import LANES, pad_lanes
from .row_answers import ManyRowAnswers
from .second_stage import ROLES as SECOND_STAGE_ROLES
from .second_stage import SecondStage

MAX_LOOP_PROBES = 2  # clusters of a row that loops can open
TABLES = "chooser", "weights", "ids", "offsets", "tail"

WORK = "to score rows over their sets"  # that memory may lack for
NORM_SPARE = 1.001  # for roundings of norms


class ChoicePreviewsStruct(Structure):
    """`struct choice_previews` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [("columns", ColumnsStruct), ("rows", c_void_p), ("error", c_void_p), ("size", c_void_p)]


class ChoicePreviews:
    """Previews of scores, which are products of contexts with columns, and what bounds their errors."""

    def __init__(self, matrix: FloatArray) -> None:
        """matrix: [d, n]. pointer: to the struct, lives as long as this."""
        self.columns, self.rows = Int8Columns(matrix), np.ascontiguousarray(matrix.T)
        rounded = self.columns.dequantize()
        size = np.linalg.norm(rounded, axis=1)
        error = np.linalg.norm(self.rows - rounded, axis=1) + size * measure_roundings(len(matrix))
        self.size, self.error = (pad_lanes(NORM_SPARE * norms).astype(np.float32) for norms in (size, error))
        self.struct = ChoicePreviewsStruct(
            self.columns.struct,
            *(get_address(values, np.float32, "previews") for values in (self.rows, self.error, self.size)),
        )
        self.pointer = byref(self.struct)


def measure_roundings(dim: int) -> float:
    """By how much float32 products of d numbers are off at most, and their previews, over the product of the norms."""
    return (dim / LANES + 16) * float(np.finfo(np.float32).eps)


class SetsStruct(Structure):
    """`struct sets` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [
        *((name, c_void_p) for name in (*TABLES, "stage", "previews")),
        *((name, c_int64) for name in ("dim", "sets", "classes", "lines", "largest", "are_experts")),
        *((name, c_float) for name in ("logit_scale", "soft_cap")),
    ]


class ScreenLimitsStruct(Structure):
    """`struct screen_limits` of kernels.h."""

    _fields_ = [
        *((name, c_int64) for name in ("k", "probes")),
        *((name, c_double) for name in ("probe_margin", "dense_margin")),
        ("full_view", c_int64),
    ]


@lru_cache(maxsize=64)
def make_limits(*limits: float) -> Any:
    """Return a pointer to the struct of these limits, in its order; gates take k alone."""
    return byref(ScreenLimitsStruct(*limits))


class Loops:
    """Scores rows over the sets that a screen or a gate picks for each. Threads may share it."""

    def __init__(
        self,
        tables: Arrays,
        lines: int,
        threads: int,
        are_experts: bool,
        finishing: tuple[float, float] = (1.0, 0.0),
        stage: SecondStage | None = None,
        previews: ChoicePreviews | None = None,
    ) -> None:
        """Take the addresses of tables, named as the struct's fields. Raises NoLibrary.

        lines: numbers in `weights` for each class. finishing: logit scale and soft-cap, 0 for none. stage: in the place
        of `weights`. previews: in the place of `chooser`.
        """
        self.kernels, self.threaded_rows = require_kernels(), ThreadedRows(threads)
        self.parts = tables, stage, previews  # must live as long as their addresses are used
        integers = "ids", "offsets"
        addresses = {
            name: get_address(table, np.int64 if name in integers else np.float32, name)
            for name, table in tables.items()
        }
        self.dim, self.sets = len(tables["chooser"]), len(tables["offsets"]) - 1
        classes = int(tables["ids"].max()) + 1 if "ids" in tables else 0
        sizes = self.dim, self.sets, classes, lines, int(np.diff(tables["offsets"]).max()), are_experts
        pointers = (None if part is None else cast(part.pointer, c_void_p).value for part in (stage, previews))
        self.struct = byref(SetsStruct(*map(addresses.get, TABLES), *pointers, *sizes, *finishing))

    def make_row_answers(
        self, max_k: int, max_rows: int, make_search: Callable[[int], Any] = make_limits
    ) -> ManyRowAnswers:
        """Return what answers up to `max_rows` rows for k up to `max_k`. make_search: k -> a pointer to the limits."""
        function = self.kernels.answer_rows_of_sets
        return ManyRowAnswers(function, self.struct, self.dim, make_search, max_k, max_rows, self.threaded_rows)

    def run(self, contexts: FloatArray, k: int, *settings: float) -> PlanResult:
        """The k best classes of `contexts` [B, d], k at most the smallest set's size.

        settings: the limits of a screen but for k. Several threads share the rows in the order of their best sets.
        """
        rows, result = as_carray(contexts), empty_result(len(contexts), k)
        if rows.size and k:
            arrays = result.ids, result.logits, result.log_normalizer, result.scored
            arguments = self.struct, make_limits(k, *settings), point_at(rows)
            if self.threaded_rows.threads < 2 or len(rows) < 2:
                check_memory(self.kernels.score_all_sets(*arguments, *map(point_at, arrays), len(rows)), WORK)
            else:
                self.run_by_threads(rows, *arguments, *map(point_at, arrays))
        return result

    def run_by_threads(self, rows: FloatArray, struct: Any, limits: Any, contexts: Any, *results: Any) -> None:
        """Put the rows in order by this thread, then share them."""
        scores, order = self.order_rows(rows)
        arguments = struct, limits, contexts, point_at(scores), point_at(order), *results
        self.threaded_rows(
            lambda first, last: check_memory(self.kernels.score_sets(*arguments, first, last), WORK), len(rows)
        )

    def order_rows(self, rows: FloatArray) -> tuple[FloatArray, IntArray]:
        """Return scores [B, n] of the sets, and the rows [B] in the order of their best sets."""
        scores, order = np.empty((len(rows), self.sets), np.float32), np.empty(len(rows), np.int32)
        arrays = point_at(rows), len(rows), point_at(scores), point_at(order)
        check_memory(self.kernels.order_rows(self.struct, *arrays), WORK)
        return scores, order


class ScreenLoops(Loops):
    """Scores each row over its best one or two clusters."""

    def __init__(self, bundle: Bundle, index: Arrays, threads: int, stage: SecondStage | None) -> None:
        finishing = bundle.manifest.logit_scale, bundle.manifest.soft_cap or 0.0
        tables = {name: index[name] for name in ("ids", "offsets", "tail")}
        tables["chooser"] = bundle.map_array("screen_columns")
        if stage is None:
            tables["weights"] = bundle.map_array("screen_sets")
        lines = bundle.manifest.dim if stage is not None else tables["weights"].shape[1]
        super().__init__(tables, lines, threads, False, finishing, stage, ChoicePreviews(tables["chooser"]))

    @classmethod
    def open(cls, bundle: Bundle, index: Arrays, threads: int) -> Self | None:
        """Map the weights, or lay out a second stage; None without a library, and where there are no arrays for it.

        index: arrays of index.safetensors.
        """
        if open_kernels() is None:
            return None
        rows = CompiledGather.open(bundle, threads) if bundle.has_arrays(*SECOND_STAGE_ROLES) else None
        if rows is not None:
            return cls(bundle, index, threads, SecondStage.open(bundle, index, rows))
        return cls(bundle, index, threads, None) if bundle.has_arrays("screen_columns", "screen_sets") else None

    def score(
        self, contexts: FloatArray, k: int, settings: ScreenSettings, use_dense: bool, full_view: int
    ) -> PlanResult:
        """The k best classes of `contexts` [B, d], k at most the smallest set's size.

        full_view: classes that a second stage scores exactly. `scored` is TO_DENSE for rows that dense has to answer,
        TO_GRAPHS for those that open more than two clusters.
        """
        return self.run(contexts, k, *list_limits(settings, use_dense), full_view)

    def open_row_answers(
        self, max_k: int, max_rows: int, settings: ScreenSettings, use_dense: bool, count_exact: Callable[[int], int]
    ) -> ManyRowAnswers:
        """Return what answers rows as `score`, but for those that dense or graphs have to answer.

        max_rows: of a call; where some rows are for dense or graphs, single ones are answered. count_exact: k -> how
        many classes a second stage scores exactly.
        """
        probes, probe_margin, dense_margin = limits = list_limits(settings, use_dense)
        leaves_rows = dense_margin > 0 or probes + (probe_margin > 0) > MAX_LOOP_PROBES
        rows = 1 if leaves_rows else max_rows
        return self.make_row_answers(max_k, rows, lambda k: make_limits(k, *limits, count_exact(k)))


def list_limits(settings: ScreenSettings, use_dense: bool) -> tuple[int, float, float]:
    """Return the limits of a search but for k and full_view, in the struct's order."""
    return settings.probes, settings.probe_margin, settings.dense_margin if use_dense else 0.0


class GateLoops(Loops):
    """Scores each row over the expert that the gate picks for it."""

    def __init__(self, bundle: Bundle, index: Arrays, threads: int) -> None:
        tables = {"chooser": bundle.map_array("gate_columns"), "weights": bundle.map_array("gate_sets")}
        tables |= {name: index[name] for name in ("ids", "offsets")}
        super().__init__(tables, bundle.manifest.dim + 1, threads, True)

    @classmethod
    def open(cls, bundle: Bundle, index: Arrays, threads: int) -> Self | None:
        """Map the weights; None without a library, and where the bundle has no arrays for the loops.

        index: arrays of index.safetensors. A bundle with int8 experts has none, since graphs read single rows of those
        faster.
        """
        has_arrays = bundle.has_arrays("gate_columns", "gate_sets")
        return cls(bundle, index, threads) if has_arrays and open_kernels() is not None else None
