"""Plan `screen` by compiled loops, with a screen or a gate: tables, mapped as the exporter laid them, and the calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, PlanResult, empty_result
from shortlist.kernels.primitives.arrays import behaved
from shortlist.runtime.parallel import SideBySide

from . import screen_loops

Index = dict[str, npt.NDArray[Any]]  # index.safetensors


class Loops:
    """Rows over the sets that a chooser picks for each. Threads may share it."""

    def __init__(
        self, at_once: Any, some: Any, chooser: FloatArray, tables: Iterable[npt.NDArray[Any]], threads: int
    ) -> None:
        """at_once, some: the loop over all rows, and the one over some. chooser: [d, n] of n sets. tables: theirs."""
        self.at_once, self.some = at_once, some
        self.chooser, self.tables, self.side_by_side = chooser, tuple(tables), SideBySide(threads)

    def compile(self, *options: float) -> None:
        """By a first call of both loops."""
        for rows in (1, 2):
            self.answers(np.zeros((rows, len(self.chooser)), np.float32), 1, *options)

    def answers(self, contexts: FloatArray, k: int, *options: float) -> PlanResult:
        """Of `contexts` [B, d]; several threads share them in the order of their best sets."""
        rows, found = behaved(contexts), empty_result(len(contexts), k)
        rest = *self.tables, *options, found.ids, found.logits, found.log_normalizer, found.scored
        if self.side_by_side.threads < 2 or len(rows) < 2:
            self.at_once(rows, self.chooser, *rest)
        else:
            scores, order = screen_loops.chosen(rows, self.chooser)
            self.side_by_side(lambda part: self.some(part, rows, scores, *rest), order)
        return found


class CompiledScreen(Loops):
    """Rows, each over its best one or two clusters."""

    def __init__(self, bundle: Bundle, index: Index, threads: int) -> None:
        """Map the weights and compile, which takes seconds where nothing is kept. index: see ScreenPlan."""
        finishing = np.array([bundle.manifest.logit_scale, bundle.manifest.soft_cap or 0.0])
        tables = bundle.map_array("screen_sets"), index["ids"], index["offsets"], index["tail"], finishing
        loops = screen_loops.screened_at_once, screen_loops.screened
        super().__init__(*loops, bundle.map_array("screen_columns"), tables, threads)
        self.compile(1, 0.0, 0.0)

    @classmethod
    def open(cls, bundle: Bundle, index: Index, threads: int) -> Self | None:
        """None where the bundle has no arrays for the loops."""
        return cls(bundle, index, threads) if bundle.has_arrays("screen_columns", "screen_sets") else None

    def __call__(
        self, contexts: FloatArray, k: int, probes: int, probe_margin: float, dense_margin: float
    ) -> PlanResult:
        """Answers of `contexts` [B, d], but for rows whose `scored` is LEFT, with over two clusters, or TO_DENSE.

        probes, probe_margin, dense_margin: as in ScreenSettings.
        """
        return self.answers(contexts, k, probes, probe_margin, dense_margin)


class CompiledGate(Loops):
    """Rows, each over the expert that the gate picks for it."""

    def __init__(self, bundle: Bundle, index: Index, threads: int) -> None:
        """Map the weights and compile, which takes seconds where nothing is kept. index: see GatedPlan."""
        tables = bundle.map_array("gate_sets").reshape(-1), index["ids"], index["offsets"]
        loops = screen_loops.gated_at_once, screen_loops.gated
        super().__init__(*loops, bundle.map_array("gate_columns"), tables, threads)
        self.compile()

    @classmethod
    def open(cls, bundle: Bundle, index: Index, threads: int) -> Self | None:
        """None where the bundle has no arrays for the loops: single rows of int8 experts are read faster by graphs."""
        return cls(bundle, index, threads) if bundle.has_arrays("gate_columns", "gate_sets") else None

    def __call__(self, contexts: FloatArray, k: int) -> PlanResult:
        """Answers of `contexts` [B, d]."""
        return self.answers(contexts, k)
