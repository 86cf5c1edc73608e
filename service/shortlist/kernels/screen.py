"""Scorers of plan `screen` by compiled loops, with a screen or a gate, over weights mapped as they were exported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.bundle.settings import ScreenSettings
from shortlist.core.results import FloatArray, PlanResult, empty_result
from shortlist.kernels.primitives.arrays import as_carray
from shortlist.runtime.parallel import ThreadedRows

from . import screen_loops

Index = dict[str, npt.NDArray[Any]]  # index.safetensors


class Loops:
    """Scores rows over the sets that a screen or a gate picks for each. Threads may share it."""

    def __init__(
        self, score_all: Any, score_some: Any, chooser: FloatArray, tables: Iterable[Any], threads: int
    ) -> None:
        """score_all, score_some: the loop over all rows of a call, and the one over some.

        chooser: [d, n], the weights by column that score n sets. tables: what the loops read of the sets.
        """
        self.score_all, self.score_some = score_all, score_some
        self.chooser, self.tables, self.threaded_rows = chooser, tuple(tables), ThreadedRows(threads)

    def compile(self, *settings: float) -> None:
        """Compile both loops by calling them once, which takes seconds where nothing is kept on disk."""
        for rows in (1, 2):
            self.run(np.zeros((rows, len(self.chooser)), np.float32), 1, *settings)

    def run(self, contexts: FloatArray, k: int, *settings: float) -> PlanResult:
        """Results of `contexts` [B, d]; several threads share them in the order of their best sets."""
        rows, result = as_carray(contexts), empty_result(len(contexts), k)
        rest = *self.tables, *settings, result.ids, result.logits, result.log_normalizer, result.scored
        if self.threaded_rows.threads < 2 or len(rows) < 2:
            self.score_all(rows, self.chooser, *rest)
        else:
            scores, order = screen_loops.order_rows(rows, self.chooser)
            self.threaded_rows(lambda part: self.score_some(part, rows, scores, *rest), order)
        return result


class ScreenLoops(Loops):
    """Scores each row over its best one or two clusters."""

    def __init__(self, bundle: Bundle, index: Index, threads: int) -> None:
        finishing = np.array([bundle.manifest.logit_scale, bundle.manifest.soft_cap or 0.0])
        sets = bundle.map_array("screen_sets")
        tables = sets.reshape(-1), index["ids"], index["offsets"], index["tail"], sets.shape[1], finishing
        loops = screen_loops.score_all_clusters, screen_loops.score_clusters
        super().__init__(*loops, bundle.map_array("screen_columns"), tables, threads)
        self.compile(1, 0.0, 0.0)

    @classmethod
    def open(cls, bundle: Bundle, index: Index, threads: int) -> Self | None:
        """Map the weights; None where the bundle has no arrays for the loops. index: arrays of index.safetensors."""
        return cls(bundle, index, threads) if bundle.has_arrays("screen_columns", "screen_sets") else None

    def score(self, contexts: FloatArray, k: int, settings: ScreenSettings, use_dense: bool) -> PlanResult:
        """The k best classes of `contexts` [B, d], k at most the smallest set's size.

        `scored` is TO_DENSE for rows that dense has to answer, TO_GRAPHS for those that open more than two clusters.
        """
        dense_margin = settings.dense_margin if use_dense else 0.0
        return self.run(contexts, k, settings.probes, settings.probe_margin, dense_margin)


class GateLoops(Loops):
    """Scores each row over the expert that the gate picks for it."""

    def __init__(self, bundle: Bundle, index: Index, threads: int) -> None:
        tables = bundle.map_array("gate_sets").reshape(-1), index["ids"], index["offsets"]
        loops = screen_loops.score_all_experts, screen_loops.score_experts
        super().__init__(*loops, bundle.map_array("gate_columns"), tables, threads)
        self.compile()

    @classmethod
    def open(cls, bundle: Bundle, index: Index, threads: int) -> Self | None:
        """Map the weights; None where the bundle has no arrays for the loops. index: arrays of index.safetensors.

        A bundle with int8 experts has none, since graphs read single rows of those faster.
        """
        return cls(bundle, index, threads) if bundle.has_arrays("gate_columns", "gate_sets") else None

    def score(self, contexts: FloatArray, k: int) -> PlanResult:
        """The k best classes of `contexts` [B, d], k at most the smallest expert's size."""
        return self.run(contexts, k)
