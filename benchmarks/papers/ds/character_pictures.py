"""Some of the images, and accuracy against speed on them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor

from benchmarks.common.figures import DOTS_PER_INCH, new_figure, save_figure
from benchmarks.datasets.rendered.distortions import IMAGE_PIXELS, distort_glyphs

GREY_LEVELS = 8  # of the images: noise makes a PNG large


def draw_accuracy(points: Sequence[tuple[str, float, float]], dense: float, out: Path) -> None:
    """(name, speed-up, accuracy) of heads, and the dense softmax's accuracy as a line."""
    figure = new_figure(6.5, 4)
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
    save_figure(figure, out)


def draw_images(glyphs: Tensor, out: Path) -> None:
    """A row a character, a column a face: each of `glyphs` [m, faces, s, s] distorted by its own draws."""
    count, faces = glyphs.shape[:2]
    images = distort_glyphs(glyphs.flatten(0, 1), torch.Generator().manual_seed(0)).view(
        count, faces, IMAGE_PIXELS, IMAGE_PIXELS
    )
    figure = Figure(figsize=(0.5 * faces, 0.5 * count), dpi=DOTS_PER_INCH)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(
        images.permute(0, 2, 1, 3).reshape(count * IMAGE_PIXELS, faces * IMAGE_PIXELS).numpy(),
        cmap="Greys",
        vmin=-0.2,
        vmax=1,
    )
    axes.set_axis_off()
    save_figure(figure, out, GREY_LEVELS)
