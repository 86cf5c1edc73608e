"""Figures C.1 and D.1 of the DS-Softmax paper."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from shortlist_models.ds.softmax import DSSoftmax

from benchmarks.common.figures import new_figure, save_figure


def draw_memory(history: list[dict[str, Any]], out: Path) -> None:
    """Memory of weights, gradients and moments over the training, in dense softmaxes (Figure D.1)."""
    figure = new_figure(7, 4)
    axes = figure.subplots()
    epochs = [record["epoch"] for record in history]
    axes.plot(epochs, [record["bytes"] / record["dense_bytes"] for record in history], marker=".")
    axes.axhline(3.25, linestyle="--", color="grey", linewidth=1)
    rows = 0
    for record in history:
        if record["experts"] != rows:
            rows = record["experts"]
            axes.annotate(f"DS-{rows}", (record["epoch"], record["bytes"] / record["dense_bytes"]), fontsize=8)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("epoch")
    axes.set_ylabel("memory, one dense softmax = 1")
    axes.grid(visible=True, alpha=0.3)
    save_figure(figure, out)


def draw_copies(module: DSSoftmax, counts: npt.NDArray[np.int64], out: Path) -> None:
    """Copies of a word against how often it occurs in train (Figure C.1)."""
    copies = np.bincount(module.ids.numpy(), minlength=module.classes)
    figure = new_figure(7, 4)
    axes = figure.subplots()
    axes.scatter(np.maximum(counts, 1), copies, s=4, alpha=0.3, linewidths=0)
    order = np.argsort(-counts, kind="stable")
    for part in np.array_split(order, 50):
        axes.plot(max(1.0, float(np.median(counts[part]))), copies[part].mean(), "o", color="tab:red", markersize=3)
    axes.set_xscale("log")
    axes.set_xlabel("occurrences in train")
    axes.set_ylabel(f"experts that hold the word, of {module.experts}")
    axes.set_title("one dot a word; red: means of fiftieths of the words")
    axes.grid(visible=True, alpha=0.3)
    save_figure(figure, out)
