"""Method `grouped`: groups and blocks of classes, small previews of the best, int8 and exact rows; plan `grouped`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from shortlist.bundle.settings import OPENED_PER_PREVIEWED, GroupedSettings
from shortlist.errors import BadInput
from shortlist_models import context_basis
from shortlist_models.rescored.grouped import GroupedSoftmax, Widths, group_similar_classes

from shortlist_exporter.core.types import Cost, FloatArray, Progress, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.grouped import write_graphs
from shortlist_exporter.inputs.sources import Dense

from .base import DenseMethod, Fitted, Options, choose_candidates, choose_width, parse_options, shuffle_rows

TAIL_FIT_ROWS = 4_000  # contexts that calibrate the tail
INT8_COLUMNS_STEP = 4  # columns that compiled loops multiply at once: the int8 columns are a multiple
MIN_CANDIDATES = 128  # with as many, k up to 10 needs no wider search
GROUP_CLASSES = 64  # in the mean
MIN_PREVIEWED = 1536  # classes


class GroupedOptions(Options):
    """`--set` options of method grouped."""

    width: int | None = Field(default=None, ge=1, description="W of the previews; 5d/9 by default")
    int8_width: int = Field(default=4, ge=1, description="columns of the previews in int8, the others in 2 bits")
    groups: int | None = Field(default=None, ge=1, description="groups of classes; V/64 by default")
    centre_width: int | None = Field(default=None, ge=1, description="columns that groups are compared by; 2W/5")
    opened: int | None = Field(default=None, ge=1, description="classes of groups opened; V/5, and twice M, at least")
    previewed: int | None = Field(default=None, ge=1, description="of those, classes previewed; V/12, at least 1,536")
    candidates: int | None = Field(default=None, ge=1, description="classes scored by int8 rows; V/384, at least 128")
    full_view: int = Field(default=7, ge=5, description="classes then scored exactly")
    promise: float = Field(
        default=0.995,
        ge=0,
        lt=1,
        description="rows are searched on until all asked for are there so probably; 0: all alike",
    )


class GroupedMethod(DenseMethod):
    """Groups and blocks of classes; `shortlist_models.rescored.grouped` has the algorithm and its sources."""

    plan = "grouped"

    def fit(
        self, dense: Dense, contexts: FloatArray, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Fit the basis, the groups, then the tail; the seed chooses the first centres and the tail's contexts."""
        method_options = fill_defaults(parse_options(GroupedOptions, options), dense)
        rows, layer, shuffled = torch.from_numpy(contexts), dense.module, shuffle_rows(len(contexts), seed)
        with torch.inference_mode():
            progress("decomposition", 0, 3)
            widths = Widths(**method_options.model_dump(include=set(Widths._fields)))
            basis = context_basis(layer.weight, rows, method_options.width or dense.dim)
            progress("groups", 1, 3)
            real = torch.from_numpy(np.setdiff1d(np.arange(dense.classes), dense.padded))
            bias = None if layer.bias is None else layer.bias[real]
            groups = group_similar_classes(basis.preview[real], bias, method_options.groups or 1, seed)
            module = GroupedSoftmax(layer, basis, real, groups, widths, seed)
            progress("tail", 2, 3)
            module.fit_tail(rows[shuffled[:TAIL_FIT_ROWS]])
        searched = method_options.model_dump(include={"opened", "previewed", "candidates", "full_view"})
        settings = GroupedSettings(**searched, tail_limit=module.tail_limit)
        fit = method_options.model_dump(exclude={*searched, "promise"}) | {
            "groups": len(module.groups.reach),
            "blocks": len(module.blocks.reach),
        }
        return Fitted(module, estimate_cost(fit | searched, dense), settings, fit)

    def find_promise(self, options: dict[str, str]) -> float | None:
        """The probability that options ask every row's search to reach; None for none. Raises BadInput."""
        return parse_options(GroupedOptions, options).promise or None

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        module = fitted.module
        assert isinstance(module, GroupedSoftmax)
        return write_graphs(folder, dense, module)

    def make_index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        """Order, starts, and all that compiled loops lay out in their own way."""
        module = fitted.module
        assert isinstance(module, GroupedSoftmax)
        tensors = {"order": module.order, "starts": module.starts, "block_starts": module.block_starts}
        tensors |= {"projection": module.projection_codes.to(torch.int8), "tail": module.tail.vector}
        tensors |= {"tail_offset": torch.tensor([module.tail.offset], dtype=torch.float32)}
        tensors |= {"preview": module.preview.to(torch.int8)}
        scales = {"scale": module.scale, "code_scale": module.code_scale, "projection_scale": module.projection_scale}
        for name, centres in (("group", module.groups), ("block", module.blocks)):
            tensors |= {f"{name}_codes": centres.codes.to(torch.int8), f"{name}_reach": centres.reach}
            scales[f"{name}_scale"] = centres.scale
        if module.fine.numel():
            tensors["fine"], scales["fine_scale"] = module.fine.to(torch.int8), module.fine_scale
        tensors |= {name: scale[:, 0] for name, scale in scales.items()}
        tensors |= {} if module.bias is None else {"bias": module.bias}
        return {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in tensors.items()}


def count_candidates(dense: Dense) -> int:
    """How many classes are scored by int8 rows where no option says it."""
    return max(MIN_CANDIDATES, dense.classes // 384)


def fill_defaults(options: GroupedOptions, dense: Dense) -> GroupedOptions:
    """The options with those filled in that follow from the layer's size; raises BadInput."""
    real, full_view = dense.real_classes, min(options.full_view, dense.real_classes)
    width = choose_width(options.width, round(dense.dim * 5 / 9), dense)
    candidates = choose_candidates(options.candidates, count_candidates(dense), full_view, dense)
    previewed = options.previewed or max(MIN_PREVIEWED, dense.classes // 12)
    if options.previewed is not None and previewed < candidates:
        raise BadInput(f"option previewed={previewed} is under the {candidates} candidates: preview more classes")
    previewed = max(previewed, candidates)
    defaults = {
        "width": width,
        "int8_width": min(options.int8_width + -options.int8_width % INT8_COLUMNS_STEP, width),
        "groups": min(options.groups or max(1, dense.classes // GROUP_CLASSES), real),
        "centre_width": min(options.centre_width or -(-2 * width // 5), width),
        "opened": min(max(options.opened or dense.classes // 5, OPENED_PER_PREVIEWED * previewed), real),
        "previewed": min(previewed, real),
        "candidates": candidates,
        "full_view": full_view,
    }
    return options.model_copy(update=defaults)


def estimate_cost(options: Mapping[str, Any], dense: Dense) -> Cost:
    """Screen, groups, blocks of those opened, previews, int8 and exact rows, against V x d.

    options: by name, as a manifest's fit and settings have them together.

    int8 and 2 bits count as one multiply-add. Bytes are those that compiled loops read: graphs keep the projection in
    float32, and score all blocks.
    """
    width, wide, previewed = options["width"], options["int8_width"], options["previewed"]
    screen = dense.dim * (width + 1)
    opened = max(options["opened"], OPENED_PER_PREVIEWED * previewed) / dense.real_classes
    centres = (options["groups"] + options["blocks"] * min(1.0, opened)) * options["centre_width"]
    preview_bytes = previewed * (width + 3 * wide) / 4
    codes, exact = options["candidates"] * dense.dim, options["full_view"] * dense.dim
    whole = dense.classes * dense.dim
    return Cost(
        macs=(screen + centres + previewed * width + codes + exact) / whole,
        bytes=(screen + 3 * dense.dim + centres + preview_bytes + codes + 4 * exact) / (4 * whole),
    )
