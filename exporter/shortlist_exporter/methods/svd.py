"""Method `svd`: SVD-softmax, as published or in the basis that contexts use; plan `preview`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from shortlist.bundle.settings import PreviewSettings
from shortlist.errors import BadInput
from shortlist_models import SVDSoftmax, context_basis, weight_basis

from shortlist_exporter.core.types import Cost, FloatArray, Progress, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.preview import write_preview
from shortlist_exporter.inputs.sources import Dense

from .base import DenseMethod, Fitted, Options, check_width, parse_options, shuffle_rows

TAIL_ROWS = 1024
DECOMPOSITION_ROWS_PER_DIM, TAIL_PASSES = 4, 4  # how long the fit takes, in logits of all classes


class SvdOptions(Options):
    """`--set` options of method svd. The defaults are the paper's for basis=weight, measured ones for context."""

    basis: Literal["weight", "context"] = "weight"
    preview: Literal["fp32", "int8"] | None = Field(default=None, description="fp32 for weight, int8 for context")
    width: int | None = Field(default=None, ge=1, description="W: d/8 for weight, 2d/9 for context")
    full_view: int | None = Field(default=None, ge=1, description="N: V/20 for weight, V/192 for context")


class Shape(Options):
    """The options with every default filled in."""

    basis: Literal["weight", "context"]
    preview: Literal["fp32", "int8"]
    width: int
    full_view: int


def fill_defaults(options: SvdOptions, dense: Dense) -> Shape:
    """Fill in the defaults for this layer; raises BadInput when W > d or N > V."""
    published = options.basis == "weight"
    shape = Shape(
        basis=options.basis,
        preview=options.preview or ("fp32" if published else "int8"),
        width=options.width or math.ceil(dense.dim / 8 if published else dense.dim * 2 / 9),
        full_view=options.full_view or math.ceil(dense.classes / (20 if published else 192)),
    )
    check_width(shape.width, dense)
    if shape.full_view > dense.classes:
        raise BadInput(f"option full_view={shape.full_view} is over V = {dense.classes}: choose fewer candidates")
    return shape


class SvdMethod(DenseMethod):
    """SVD-softmax; `shortlist_models.svd` has the algorithm and its source."""

    plan = "preview"
    ways_to_find_more = "use --set basis=context, or a larger full_view or width"

    def count_fit_rows(self, dense: Dense, rows: int) -> int:
        return DECOMPOSITION_ROWS_PER_DIM * dense.dim + TAIL_PASSES * min(TAIL_ROWS, rows)

    def fit(
        self, dense: Dense, contexts: FloatArray, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Decompose in closed form; the seed only chooses the rows that calibrate the tail."""
        progress("decomposition", 0, 1)
        shape = fill_defaults(parse_options(SvdOptions, options), dense)
        weight = torch.from_numpy(dense.weight)
        if shape.basis == "weight":
            basis = weight_basis(weight, shape.width)
        else:
            basis = context_basis(weight, torch.from_numpy(contexts), shape.width)
        module = SVDSoftmax(dense.module, basis, shape.full_view, quantized=shape.preview == "int8")
        return calibrate(module, dense, contexts, shape, seed)

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        assert isinstance(fitted.module, SVDSoftmax)
        return GraphFiles({"preview": write_preview(folder, dense, fitted.module)})


def calibrate(module: SVDSoftmax, dense: Dense, contexts: FloatArray, shape: Shape, seed: int) -> Fitted:
    """Set the full view of a decomposed head, and calibrate its tail for it."""
    module.full_view, module.tail_shift, module.tail_size = shape.full_view, 0.0, 0.0
    if shape.basis == "context":
        module.calibrate_tail(torch.from_numpy(sample_rows(contexts, seed)))
    size = module.tail_size if module.tail_shift else None
    settings = PreviewSettings(full_view=shape.full_view, tail_shift=module.tail_shift, tail_size=size or None)
    return Fitted(module, estimate_cost(dense, shape), settings, shape.model_dump(exclude={"full_view"}))


def change_full_view(fitted: Fitted, dense: Dense, contexts: FloatArray, setting: dict[str, int], seed: int) -> Fitted:
    """`fitted` with another full_view. Equals a fit with it, but without the decomposition."""
    module = fitted.module
    assert isinstance(module, SVDSoftmax)
    return calibrate(module, dense, contexts, Shape(**(fitted.fit | setting)), seed)


def sample_rows(contexts: FloatArray, seed: int) -> FloatArray:
    """At most `TAIL_ROWS` random rows, in their order."""
    rows: FloatArray = contexts[np.sort(shuffle_rows(len(contexts), seed)[:TAIL_ROWS].numpy())]
    return rows


def estimate_cost(dense: Dense, shape: Shape) -> Cost:
    """Multiply-adds and bytes of projection, preview and full view, relative to the dense layer's."""
    classes, dim = dense.classes, dense.dim
    projection, preview, full_view = dim * shape.width, classes * shape.width, dim * shape.full_view
    preview_bytes = preview * (1 if shape.preview == "int8" else 4)
    return Cost(
        macs=(projection + preview + full_view) / (classes * dim),
        bytes=(4 * projection + preview_bytes + 4 * full_view) / (4 * classes * dim),
    )
