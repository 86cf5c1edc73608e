"""Pictures as small PNG files: drawn by matplotlib without a display, stored with a palette."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure
from PIL import Image

matplotlib.use("Agg")
DOTS_PER_INCH = 130
PALETTE_COLOURS = 128


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, whose parts arrange themselves."""
    return Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained", facecolor="white")


def save_figure(figure: Figure, path: Path, colours: int = PALETTE_COLOURS) -> None:
    """Write `figure` to `path` as a PNG of at most `colours` colours; folders are made where they are missing."""
    png = io.BytesIO()
    figure.savefig(png, format="png")
    path.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(png) as image:
        image.convert("RGB").quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
