"""Plan `screen` by compiled loops, with a screen or a gate: tables, mapped as the exporter laid them, and the calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..bundle import Bundle
from ..plans.base import empty_result
from ..result import FloatArray, PlanResult
from ..side_by_side import SideBySide
from . import row_products
from .previews import FLOAT
from .tables import behaved


class Limits(Protocol):
    """The plan's options, read at every call, since they may be changed."""

    probes: int
    probe_margin: float
    dense_margin: float
    fallback: Any


class CompiledScreen:
    """Rows, each over its best one or two clusters. Threads may share it."""

    def __init__(self, bundle: Bundle, index: dict[str, npt.NDArray[Any]], threads: int) -> None:
        """Map the weights and compile, which takes seconds where nothing is kept. index: see ScreenPlan."""
        manifest = bundle.manifest
        finishing = np.array([manifest.logit_scale, manifest.soft_cap or 0.0])
        self.tables = *tables(bundle, index, "screen"), index["tail"], finishing
        self.side_by_side = SideBySide(threads)
        self.search(np.zeros((1, manifest.dim), np.float32), 1, 1, 0.0, 0.0)

    @staticmethod
    def reads(bundle: Bundle, index: dict[str, npt.NDArray[Any]]) -> bool:
        """Whether the bundle's weights lie where they can be mapped."""
        return readable(bundle, index, "screen", (bundle.manifest.dim, bundle.manifest.dim + 1))

    def __call__(self, contexts: FloatArray, k: int, limits: Limits) -> PlanResult:
        """Answers of `contexts` [B, d], but for rows whose `scored` is LEFT, with over two clusters, or TO_DENSE."""
        dense_margin = 0.0 if limits.fallback is None else limits.dense_margin
        return self.search(contexts, k, limits.probes, limits.probe_margin, dense_margin)

    def search(self, contexts: FloatArray, k: int, probes: int, probe_margin: float, dense_margin: float) -> PlanResult:
        """Arrays for the answers, filled."""

        def fill(rows: FloatArray, *written: npt.NDArray[Any]) -> None:
            row_products.screened(rows, *self.tables, probes, probe_margin, dense_margin, *written)

        return filled(self.side_by_side, fill, contexts, k)


class CompiledGate:
    """Rows over the expert that the gate picks for each. Threads may share it."""

    def __init__(self, bundle: Bundle, index: dict[str, npt.NDArray[Any]], threads: int) -> None:
        """Map the weights and compile, which takes seconds where nothing is kept. index: see GatedPlan."""
        self.tables = tables(bundle, index, "gate")
        self.side_by_side = SideBySide(threads)
        self(np.zeros((1, bundle.manifest.dim), np.float32), 1)

    @staticmethod
    def reads(bundle: Bundle, index: dict[str, npt.NDArray[Any]]) -> bool:
        """Whether the bundle's weights lie where they can be mapped, and are not read as int8 by single rows."""
        int8 = bundle.manifest.options.get("int8", False)
        return not int8 and readable(bundle, index, "gate", (bundle.manifest.dim + 1,))

    def __call__(self, contexts: FloatArray, k: int) -> PlanResult:
        """Answers of `contexts` [B, d]."""

        def fill(rows: FloatArray, *written: npt.NDArray[Any]) -> None:
            row_products.gated(rows, *self.tables, *written)

        return filled(self.side_by_side, fill, contexts, k)


def filled(side_by_side: SideBySide, fill: Callable[..., None], contexts: FloatArray, k: int) -> PlanResult:
    """The answers that `fill` writes for some rows of `contexts` [B, d] at a time."""
    found = empty_result(len(contexts), k)
    side_by_side(fill, behaved(contexts), found.ids, found.logits, found.log_normalizer, found.scored)
    return found


def tables(bundle: Bundle, index: dict[str, npt.NDArray[Any]], chooser: str) -> tuple[npt.NDArray[Any], ...]:
    """The chooser's weights by column [d, n], those of all sets, the sets' classes, and where each begins."""
    folder, dim = bundle.graph("fused").parent, bundle.manifest.dim
    columns = mapped(folder / f"{chooser}.bin").reshape(dim, -1)
    return columns, mapped(folder / "sets.bin"), index["ids"], index["offsets"]


def mapped(path: Path) -> FloatArray:
    """A raw file of the bundle, shared with whoever maps it; writable in name: numba knows such types faster."""
    return np.asarray(np.memmap(path, np.float32, "c"))


def readable(bundle: Bundle, index: dict[str, npt.NDArray[Any]], chooser: str, lines: tuple[int, ...]) -> bool:
    """Whether the weights lie in files of their own, in so many `lines` of sets; older bundles lay them otherwise."""
    if not bundle.has_graph("fused"):
        return False
    folder, classes = bundle.graph("fused").parent, index["ids"].size
    files = [folder / f"{name}.bin" for name in (chooser, "sets")]
    return all(map(Path.is_file, files)) and files[1].stat().st_size in [FLOAT * classes * count for count in lines]
