"""Plan `screen` by compiled loops, with a screen or a gate: the tables, mapped as the exporter wrote them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, PlanResult, empty_result
from shortlist.kernels.primitives.arrays import FLOAT_BYTES, as_carray, mapped
from shortlist.runtime.parallel import SideBySide

from . import screen_loops


class ScreenLimits(Protocol):
    """The plan's settings, which are read at every call."""

    probes: int
    probe_margin: float
    dense_margin: float
    fallback: Any


class RowLoops:
    """Searches each row in the sets (clusters or experts) that a chooser picks for it. Threads may share it."""

    def __init__(
        self, search_all: Any, search_some: Any, chooser: FloatArray, tables: Iterable[npt.NDArray[Any]], threads: int
    ) -> None:
        """chooser: [d, n] float32, a column for each of n sets. tables: passed to the loops before the options.

        search_all, search_some: the loop over all rows, and the one over some of them. threads: that may share a call.
        """
        self.at_once, self.some = search_all, search_some
        self.chooser, self.tables, self.side_by_side = chooser, tuple(tables), SideBySide(threads)

    def compile_loops(self, *options: float) -> None:
        """Compile both loops by calling them."""
        for rows in (1, 2):
            self.search(np.zeros((rows, len(self.chooser)), np.float32), 1, *options)

    def search(self, contexts: FloatArray, k: int, *options: float) -> PlanResult:
        """Search `contexts` [B, d]; several threads share the rows in the order of their best sets."""
        rows, result = as_carray(contexts), empty_result(len(contexts), k)
        rest = *self.tables, *options, result.ids, result.logits, result.log_normalizer, result.scored
        if self.side_by_side.threads < 2 or len(rows) < 2:
            self.at_once(rows, self.chooser, *rest)
        else:
            scores, order = screen_loops.choose_sets(rows, self.chooser)
            self.side_by_side(lambda part: self.some(part, rows, scores, *rest), order)
        return result


class CompiledScreen(RowLoops):
    """Searches each row in its best one or two clusters."""

    def __init__(self, bundle: Bundle, index: dict[str, npt.NDArray[Any]], threads: int) -> None:
        """Map the weights and compile the loops: seconds where they are not cached. index: of index.safetensors."""
        finishing = np.array([bundle.manifest.logit_scale, bundle.manifest.soft_cap or 0.0])
        chooser, *sets = tables(bundle, index, "screen")
        loops = screen_loops.screen_all_rows, screen_loops.screen_rows
        super().__init__(*loops, chooser, [*sets, index["tail"], finishing], threads)
        self.compile_loops(1, 0.0, 0.0)

    @staticmethod
    def reads(bundle: Bundle, index: dict[str, npt.NDArray[Any]]) -> bool:
        """Whether the bundle's weights lie where they can be mapped."""
        return readable(bundle, index, "screen", (bundle.manifest.dim, bundle.manifest.dim + 1))

    def __call__(self, contexts: FloatArray, k: int, limits: ScreenLimits) -> PlanResult:
        """Search `contexts` [B, d]; rows that open over two clusters get `scored` UNSCORED, rows for dense TO_DENSE."""
        dense_margin = 0.0 if limits.fallback is None else limits.dense_margin
        return self.search(contexts, k, limits.probes, limits.probe_margin, dense_margin)


class CompiledGate(RowLoops):
    """Searches each row in the expert that the gate picks for it."""

    def __init__(self, bundle: Bundle, index: dict[str, npt.NDArray[Any]], threads: int) -> None:
        """Map the weights and compile the loops: seconds where they are not cached. index: of index.safetensors."""
        chooser, *sets = tables(bundle, index, "gate")
        super().__init__(screen_loops.gate_all_rows, screen_loops.gate_rows, chooser, sets, threads)
        self.compile_loops()

    @staticmethod
    def reads(bundle: Bundle, index: dict[str, npt.NDArray[Any]]) -> bool:
        """Whether the bundle's weights lie where they can be mapped, and are not read as int8 by single rows."""
        int8 = bundle.manifest.options.get("int8", False)
        return not int8 and readable(bundle, index, "gate", (bundle.manifest.dim + 1,))

    def __call__(self, contexts: FloatArray, k: int) -> PlanResult:
        """Search `contexts` [B, d]."""
        return self.search(contexts, k)


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
    return all(map(Path.is_file, files)) and files[1].stat().st_size in [
        FLOAT_BYTES * classes * count for count in lines
    ]
