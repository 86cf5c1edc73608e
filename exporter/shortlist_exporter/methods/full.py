"""Method `full`: the dense head itself, exact; what the others are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Literal

from shortlist.bundle.manifest import Normalizer

from shortlist_exporter.core.types import Cost, FloatArray, Progress, quiet
from shortlist_exporter.inputs.sources import Dense

from .base import Fitted, Options, no_index, parse_options


class FullMethod:
    """Nothing to fit."""

    plan: ClassVar[str] = "full"
    reference: ClassVar[Literal["dense", "self"]] = "dense"
    normalizer: ClassVar[Normalizer] = "exact"

    def fit(
        self, dense: Dense, contexts: FloatArray, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """See Method.fit."""
        del contexts, seed, progress
        parse_options(Options, options)
        return Fitted(dense.module, Cost(macs=1.0, bytes=1.0))

    def graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> dict[str, str]:
        """See Method.graphs; dense.onnx is written for every bundle."""
        del fitted, dense, folder
        return {}

    index = no_index
