"""Figures 3 and A.1 of the Doubly Sparse paper: which expert has which classes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from benchmarks.common.figures import new_figure, save_figure

from .hierarchy import ExpertFigures


def draw_experts(panels: Mapping[str, ExpertFigures], out: Path) -> None:
    """A panel each: a row an expert, a column a class, super class after super class; dark where the expert has it."""
    figure = new_figure(4.2 * len(panels), 4.2)
    for axes, (title, figures) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True):
        draw_panel(axes, figures)
        axes.set_title(title)
    save_figure(figure, out)


def draw_panel(axes: Axes, figures: ExpertFigures) -> None:
    """One panel; experts in the order of the super class that they hold most of."""
    experts, supers = figures.members.shape
    order = sorted(range(experts), key=lambda expert: (int(figures.members[expert].argmax()), expert))
    cells = np.zeros((experts, supers * supers), np.float32)
    for row, expert in enumerate(order):
        cells[row, figures.sets[expert].numpy()] = 1
    axes.imshow(cells, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="antialiased")
    axes.set_xticks(np.arange(0, supers * supers + 1, supers * supers // 10) - 0.5, labels=[])
    axes.set_xticks(
        np.arange(supers * supers // 20, supers * supers, supers * supers // 10),
        [str(i) if supers <= 10 else f"{i}-{i + supers // 10 - 1}" for i in range(0, supers, supers // 10)],
        minor=True,
    )
    axes.tick_params(axis="x", which="minor", length=0, labelsize="small")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, axis="x", which="major", alpha=0.4)
    axes.set_xlabel("super class of a class")
    axes.set_ylabel("expert")
