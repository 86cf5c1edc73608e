"""Method `ds-svd`: Doubly Sparse Softmax with SVD previews inside its large experts; plan `gated`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy.typing as npt
import torch
from pydantic import Field
from shortlist.bundle.settings import GatedSettings
from shortlist.errors import BadInput
from shortlist_models.ds.preview import PreviewedDS, fit_previews
from shortlist_models.ds.softmax import DSSoftmax

from shortlist_exporter.core.types import Cost
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.gate.experts import write_graphs
from shortlist_exporter.inputs.sources import Contexts, Dense

from .base import Fitted, check_width
from .ds import DsMethod, DsOptions


class DsSvdOptions(DsOptions):
    """`--set` options of method ds-svd beyond those of ds."""

    over: int = Field(default=512, ge=1, description="experts of more classes than this are previewed")
    basis: Literal["weight", "context"] = "context"
    width: int | None = Field(default=None, ge=1, description="W: d/8 for weight, 2d/9 for context")
    full_view: int | None = Field(default=None, ge=1, description="N: a twentieth of the largest expert")


class DsSvdMethod(DsMethod):
    """DS-Softmax with previews; `shortlist_models.ds.preview` has the algorithm and its source."""

    normalizer = "estimated"
    ways_to_find_more = "use a larger full_view or width, as in --set full_view=256"
    kind: ClassVar[type[DsOptions]] = DsSvdOptions

    def make_fitted(
        self, module: DSSoftmax, dense: Dense, examples: Contexts, options: DsOptions, notes: tuple[str, ...]
    ) -> Fitted:
        """The fitted head of a trained module, with a preview of every expert of more than `over` classes."""
        assert isinstance(options, DsSvdOptions)
        if options.int8:
            raise BadInput("option int8 exists for method ds only: leave it out")
        plain = super().make_fitted(module, dense, examples, options, notes)
        width = options.width or math.ceil(dense.dim / 8 if options.basis == "weight" else dense.dim * 2 / 9)
        check_width(width, dense)
        contexts = torch.from_numpy(examples.contexts)
        previews = fit_previews(module, contexts, options.over, width, weighted=options.basis == "context")
        if not previews:
            largest = max(module.sizes)
            sentence = f"no expert has over {options.over} classes (the largest {largest}), so none is previewed"
            notes = (*notes, sentence)
        full_view = options.full_view or math.ceil(max(module.sizes) / 20)
        used: list[float] = plain.fit["used"]
        cost = estimate_cost(module, set(previews), used, width, full_view)
        fit = plain.fit | {"width": width, "previewed": sorted(previews)}
        return Fitted(PreviewedDS(module, previews, full_view), cost, GatedSettings(full_view=full_view), fit, notes)

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        del dense
        module = fitted.module
        assert isinstance(module, PreviewedDS)
        return write_graphs(folder, module.experts, module.previews)

    def make_index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        module = fitted.module
        assert isinstance(module, PreviewedDS)
        return {"ids": module.experts.ids.numpy(), "offsets": module.experts.offsets.numpy()}


def estimate_cost(module: DSSoftmax, previewed: set[int], used: list[float], width: int, full_view: int) -> Cost:
    """Cost of a query, relative to the dense layer's: the gate, and the chosen expert whole or by its preview."""
    classes, dim = module.classes, module.weight.shape[1]
    macs = float(module.experts * dim)
    for expert, (size, share) in enumerate(zip(module.sizes, used, strict=True)):
        expert_macs = dim * width + size * width + min(size, full_view) * dim if expert in previewed else size * dim
        macs += share * expert_macs
    return Cost(macs=macs / (classes * dim), bytes=macs / (classes * dim))
