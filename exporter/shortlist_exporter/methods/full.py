"""Method `full`: the dense head itself, exact; what the others are compared with."""

from __future__ import annotations

from pathlib import Path

from shortlist_exporter.core.types import Cost, FloatArray, Progress, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.inputs.sources import Dense

from .base import DenseMethod, Fitted, Options, parse_options


class FullMethod(DenseMethod):
    """The dense layer as it is: nothing is fitted."""

    plan = "full"
    normalizer = "exact"

    def count_fit_rows(self, dense: Dense, rows: int) -> int:
        del dense, rows
        return 0

    def fit(
        self, dense: Dense, contexts: FloatArray, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        del contexts, seed, progress
        parse_options(Options, options)
        return Fitted(dense.module, Cost(macs=1.0, bytes=1.0))

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        del fitted, dense, folder
        return GraphFiles()  # dense.onnx is written for every bundle
