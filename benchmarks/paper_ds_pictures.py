"""Figures 3 and A.1 of the Doubly Sparse paper, and accuracy against speed on characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from .characters.distortions import SIZE, distorted
from .hierarchy import Found
from .paper_svd_pictures import save

matplotlib.use("Agg")


def experts_picture(panels: Mapping[str, Found], out: Path) -> None:
    """A panel each: a row an expert, a column a class, super class after super class; dark where the expert has it."""
    figure = Figure(figsize=(4.2 * len(panels), 4.2), dpi=130, layout="constrained")
    for axes, (title, found) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True):
        draw(axes, found)
        axes.set_title(title)
    save(figure, out)


def draw(axes: Axes, found: Found) -> None:
    """One panel; experts in the order of the super class that they hold most of."""
    experts, supers = found.members.shape
    order = sorted(range(experts), key=lambda expert: (int(found.members[expert].argmax()), expert))
    cells = np.zeros((experts, supers * supers), np.float32)
    for row, expert in enumerate(order):
        cells[row, found.sets[expert].numpy()] = 1
    axes.imshow(cells, aspect="auto", cmap="Blues", vmin=0, vmax=1, interpolation="antialiased")
    axes.set_xticks(np.arange(0, supers * supers + 1, supers * supers // 10) - 0.5, labels=[])
    axes.set_xticks(
        np.arange(supers * supers // 20, supers * supers, supers * supers // 10),
        [f"{i:,}" for i in range(0, supers, supers // 10)],
        minor=True,
    )
    axes.tick_params(axis="x", which="minor", length=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, axis="x", which="major", alpha=0.4)
    axes.set_xlabel("super class of a class" if supers <= 10 else "super class of a class (every tenth is named)")
    axes.set_ylabel("expert")


def accuracy_picture(points: Sequence[tuple[str, float, float]], dense: float, out: Path) -> None:
    """(name, speed-up, accuracy) of heads, and the dense softmax's accuracy as a line."""
    figure = Figure(figsize=(6.5, 4), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.axhline(dense, color="grey", linestyle="--", label="dense, retrained")
    axes.plot([speed for _, speed, _ in points], [share for _, _, share in points], "o-", label="Doubly Sparse")
    for name, speed, share in points:
        axes.annotate(name, (speed, share), textcoords="offset points", xytext=(6, 5))
    axes.set_xlabel("times fewer multiply-adds than dense")
    axes.set_ylabel("accuracy on test")
    axes.margins(x=0.12, y=0.3)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    save(figure, out)


def images_picture(glyphs: Tensor, out: Path) -> None:
    """A row a character, a column a face: each of `glyphs` [m, faces, s, s] distorted by its own draws."""
    count, faces = glyphs.shape[:2]
    images = distorted(glyphs.flatten(0, 1), torch.Generator().manual_seed(0)).view(count, faces, SIZE, SIZE)
    figure = Figure(figsize=(0.5 * faces, 0.5 * count), dpi=130)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(images.permute(0, 2, 1, 3).reshape(count * SIZE, faces * SIZE).numpy(), cmap="Greys", vmin=-0.2, vmax=1)
    axes.set_axis_off()
    save(figure, out)
