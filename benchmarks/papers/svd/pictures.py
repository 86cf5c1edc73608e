"""Figures 2 and 3 of the SVD-softmax paper."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.common.figures import new_figure, save_figure


def draw_spectra(spectra: Mapping[str, npt.NDArray[np.float32]], title: str, out: Path) -> None:
    """Singular values in falling order, each basis over its own largest (Figure 2)."""
    figure = new_figure(7, 4)
    axes = figure.subplots()
    for kind, values in spectra.items():
        axes.plot(np.arange(1, len(values) + 1), values / values[0], label=f"basis={kind}")
    axes.set_yscale("log")
    axes.set_xlabel("index")
    axes.set_ylabel("singular value over the largest")
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    save_figure(figure, out)


def draw_heat_map(ratios: Mapping[tuple[int, int], float], title: str, out: Path) -> None:
    """Z~/Z over preview widths and full-view sizes (Figure 3)."""
    widths = sorted({width for width, _ in ratios})
    views = sorted({view for _, view in ratios})
    values = np.array([[ratios[width, view] for view in views] for width in widths])
    figure = new_figure(6.5, 4)
    axes = figure.subplots()
    image = axes.imshow(values, aspect="auto", vmin=0, vmax=1.05, cmap="viridis", origin="lower")
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, f"{value:.3f}", ha="center", va="center", color="white" if value < 0.7 else "black")
    axes.set_xticks(range(len(views)), [f"{view:,}" for view in views])
    axes.set_yticks(range(len(widths)), [str(width) for width in widths])
    axes.set_xlabel("N, classes scored exactly")
    axes.set_ylabel("W, width of the preview")
    axes.set_title(title)
    figure.colorbar(image)
    save_figure(figure, out)
