"""Previews of a mixture's frequent classes in int8, and how far from the truth a component's product with one may be.

A component h, rounded to p, has with a class of weights w, whose preview is q, the product h w = p q + h (w - q) +
(h - p) q. So by Cauchy and Schwarz p q is off by |h| |w - q| + |h - p| |q| at most, and the mean over components, whose
gates are not rounded, by no more than the largest of these.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from shortlist.bundle.manifest import RawArray
from shortlist.core.results import DoubleArray
from shortlist.core.rounding import UNIT_ROUNDOFF
from shortlist_models.svd import quantize_rows

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.graphs.builder import GraphFiles

ROLES = tuple(f"mixture_preview_{name}" for name in ("rows", "scales", "errors", "sizes"))
MIN_FREQUENT = 160  # classes: loops use previews for 32 classes and more for each of 5 that are scored exactly, or k
CHUNK_CLASSES = 4096  # whose previews are made at once
RUN_COLUMNS = 32  # of products that loops add in one run
MIXING_ROUNDINGS = 128  # of a mean over components in float32, besides four for each component
SPARE = 1 + 1e-6  # for the roundings of norms


def write_previews(folder: Path, rows: FloatArray, components: int) -> GraphFiles:
    """Files for the arrays of previews of `rows` [S, d]; none where there are so few that all are scored exactly."""
    if len(rows) < MIN_FREQUENT:
        return GraphFiles()
    arrays = {}
    for role, values in make_previews(rows, components).items():
        file = f"{role.removeprefix('mixture_')}.bin"
        values.tofile(folder / file)
        arrays[role] = RawArray.describe(file, values)
    return GraphFiles({}, arrays)


def make_previews(rows: FloatArray, components: int) -> dict[str, npt.NDArray[np.generic]]:
    """Previews of `rows` [S, d] by role: int8 [S, d], and scales, errors and sizes, float32 [S].

    errors: times a component's norm, by how much its product may be off, with what float32 rounds in that product, in
    that of all components, and in the mean of either. sizes: times the norm of what rounding leaves of a component.
    """
    parts = [preview_chunk(rows[i : i + CHUNK_CLASSES], components) for i in range(0, len(rows), CHUNK_CLASSES)]
    return {role: np.concatenate([part[role] for part in parts]) for role in parts[0]}


def preview_chunk(rows: FloatArray, components: int) -> dict[str, npt.NDArray[Any]]:
    """As `make_previews`, of some rows."""
    levels, scale = (part.numpy() for part in quantize_rows(torch.from_numpy(rows)))
    scale = np.maximum(scale, np.finfo(np.float32).tiny)
    exact, previews = rows.astype(np.float64), levels.astype(np.float64) * scale
    sizes = np.maximum(measure_rows(exact), measure_rows(previews))
    roundings = rows.shape[1] / RUN_COLUMNS + MIXING_ROUNDINGS + 4 * components
    errors = measure_rows(exact - previews) + UNIT_ROUNDOFF * roundings * sizes
    values = levels.astype(np.int8), scale[:, 0], round_up(errors), round_up(sizes)
    return dict(zip(ROLES, values, strict=True))


def measure_rows(rows: DoubleArray) -> DoubleArray:
    """The norms [S] of rows [S, d]."""
    norms: DoubleArray = np.sqrt(np.square(rows).sum(axis=1))
    return norms


def round_up(values: DoubleArray) -> FloatArray:
    """`values` [S] of 0 or more in float32, none of them less, and a little for roundings."""
    return np.nextafter((values * SPARE).astype(np.float32), np.float32(np.inf))
