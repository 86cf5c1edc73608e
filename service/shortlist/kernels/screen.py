"""Scorers of plan `screen` by compiled loops, with a screen or a gate, over weights mapped as they were exported."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, PlanResult, empty_result
from shortlist.kernels.primitives.arrays import FLOAT, behaved, mapped
from shortlist.runtime.parallel import SideBySide

from . import screen_loops


class ScreenSettings(Protocol):
    """The settings that loops need; what they mean is said where `plans.screen.router` has them all."""

    @property
    def probes(self) -> int: ...
    @property
    def probe_margin(self) -> float: ...
    @property
    def dense_margin(self) -> float: ...


class Loops:
    """Scores rows over the sets that a screen or a gate picks for each. Threads may share it."""

    def __init__(
        self, score_all: Any, score_some: Any, chooser: FloatArray, tables: Iterable[npt.NDArray[Any]], threads: int
    ) -> None:
        """score_all, score_some: the loop over all rows of a call, and the one over some.

        chooser: [d, n], the weights by column that score n sets. tables: what the loops read of the sets.
        """
        self.score_all, self.score_some = score_all, score_some
        self.chooser, self.tables, self.side_by_side = chooser, tuple(tables), SideBySide(threads)

    def compile(self, *settings: float) -> None:
        """Compile both loops by calling them once, which takes seconds where nothing is kept on disk."""
        for rows in (1, 2):
            self.run(np.zeros((rows, len(self.chooser)), np.float32), 1, *settings)

    def run(self, contexts: FloatArray, k: int, *settings: float) -> PlanResult:
        """Results of `contexts` [B, d]; several threads share them in the order of their best sets."""
        rows, result = behaved(contexts), empty_result(len(contexts), k)
        rest = *self.tables, *settings, result.ids, result.logits, result.log_normalizer, result.scored
        if self.side_by_side.threads < 2 or len(rows) < 2:
            self.score_all(rows, self.chooser, *rest)
        else:
            scores, order = screen_loops.order_rows(rows, self.chooser)
            self.side_by_side(lambda part: self.score_some(part, rows, scores, *rest), order)
        return result


class ScreenLoops(Loops):
    """Scores each row over its best one or two clusters."""

    def __init__(self, bundle: Bundle, index: dict[str, npt.NDArray[Any]], threads: int) -> None:
        finishing = np.array([bundle.manifest.logit_scale, bundle.manifest.soft_cap or 0.0])
        chooser, *sets = tables(bundle, index, "screen")
        loops = screen_loops.score_all_clusters, screen_loops.score_clusters
        super().__init__(*loops, chooser, [*sets, index["tail"], finishing], threads)
        self.compile(1, 0.0, 0.0)

    @classmethod
    def open(cls, bundle: Bundle, index: dict[str, npt.NDArray[Any]], threads: int) -> ScreenLoops | None:
        """Map the weights; None where they do not lie as the loops read them. index: see ScreenPlan."""
        dim = bundle.manifest.dim
        return cls(bundle, index, threads) if readable(bundle, index, "screen", (dim, dim + 1)) else None

    def score(self, contexts: FloatArray, k: int, settings: ScreenSettings, use_dense: bool) -> PlanResult:
        """The k best classes of `contexts` [B, d], k at most the smallest set's size.

        `scored` is TO_DENSE for rows that dense has to answer, LEFT for those that open more than two clusters.
        """
        dense_margin = settings.dense_margin if use_dense else 0.0
        return self.run(contexts, k, settings.probes, settings.probe_margin, dense_margin)


class GateLoops(Loops):
    """Scores each row over the expert that the gate picks for it."""

    def __init__(self, bundle: Bundle, index: dict[str, npt.NDArray[Any]], threads: int) -> None:
        chooser, *sets = tables(bundle, index, "gate")
        super().__init__(screen_loops.score_all_experts, screen_loops.score_experts, chooser, sets, threads)
        self.compile()

    @classmethod
    def open(cls, bundle: Bundle, index: dict[str, npt.NDArray[Any]], threads: int) -> GateLoops | None:
        """Map the weights; None where they do not lie as the loops read them, or single rows read them as int8.

        index: see GatedPlan.
        """
        int8 = bundle.manifest.options.get("int8", False)
        fits = not int8 and readable(bundle, index, "gate", (bundle.manifest.dim + 1,))
        return cls(bundle, index, threads) if fits else None

    def score(self, contexts: FloatArray, k: int) -> PlanResult:
        """The k best classes of `contexts` [B, d], k at most the smallest expert's size."""
        return self.run(contexts, k)


def tables(bundle: Bundle, index: dict[str, npt.NDArray[Any]], chooser: str) -> tuple[npt.NDArray[Any], ...]:
    """The chooser's weights by column [d, n], those of all sets, the sets' classes, and where each begins."""
    folder, dim = bundle.graph("fused").parent, bundle.manifest.dim
    columns = mapped(folder / f"{chooser}.bin").reshape(dim, -1)
    return columns, mapped(folder / "sets.bin"), index["ids"], index["offsets"]


def readable(bundle: Bundle, index: dict[str, npt.NDArray[Any]], chooser: str, lines: tuple[int, ...]) -> bool:
    """Whether the weights lie in files of their own, in so many `lines` of sets; older bundles lay them otherwise."""
    if not bundle.has_graph("fused"):
        return False
    folder, classes = bundle.graph("fused").parent, index["ids"].size
    files = [folder / f"{name}.bin" for name in (chooser, "sets")]
    return all(map(Path.is_file, files)) and files[1].stat().st_size in [FLOAT * classes * count for count in lines]
