"""Method `cascade`: screen, int8 previews, int8 rows, exact scores; plan `cascade`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy.typing as npt
import torch
from pydantic import Field
from shortlist.bundle.settings import CascadeSettings
from shortlist_models import context_basis
from shortlist_models.rescored.cascade import CascadeSoftmax, order_by_best_classes

from shortlist_exporter.core.types import Cost, FloatArray, Progress, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.cascade import write_graphs
from shortlist_exporter.inputs.sources import Dense

from .base import DenseMethod, Fitted, Options, choose_candidates, choose_width, parse_options, shuffle_rows

FREQUENCY_ROWS = 8_000  # contexts that put the classes in order
CASCADE_CALIBRATION_ROWS = 8_000  # contexts that calibrate screen and tail
ORDER_PASSES, TAIL_PASSES = 2, 4  # how long a context of each takes, in logits of all classes
MIN_SPLIT_CLASSES = 1024  # layers of up to so many classes are not split into common and rare ones


class CascadeOptions(Options):
    """`--set` options of method cascade."""

    width: int | None = Field(default=None, ge=1, description="W of the previews; 2d/9 by default")
    common: float = Field(default=0.5, gt=0, le=1, description="share of the classes that every query looks at; 1: all")
    rare_share: float = Field(default=0.15, ge=0, le=1, description="share of queries that look at the rare ones too")
    candidates: int | None = Field(default=None, ge=1, description="classes scored by int8 rows; V/128 by default")
    full_view: int = Field(default=24, ge=5, description="classes then scored exactly")


class CascadeMethod(DenseMethod):
    """A cascade of stages; `shortlist_models.rescored.cascade` has the algorithm and its sources."""

    plan = "cascade"
    ways_to_find_more = "use a larger candidates, rare_share or width, as in --set candidates=1024"

    def count_fit_rows(self, dense: Dense, rows: int) -> int:
        del dense
        return ORDER_PASSES * min(FREQUENCY_ROWS, rows) + TAIL_PASSES * min(CASCADE_CALIBRATION_ROWS, rows)

    def fit(
        self, dense: Dense, contexts: FloatArray, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Fit the basis, the order of classes, then screen and tail; the seed chooses the contexts for each."""
        method_options = fill_defaults(parse_options(CascadeOptions, options), dense)
        rows, layer, shuffled = torch.from_numpy(contexts), dense.module, shuffle_rows(len(contexts), seed)
        with torch.inference_mode():
            progress("decomposition", 0, 3)
            assert method_options.width is not None
            assert method_options.candidates is not None
            basis = context_basis(layer.weight, rows, method_options.width)
            progress("order of classes", 1, 3)
            order = order_by_best_classes(layer, rows[shuffled[:FREQUENCY_ROWS]])
            common = (
                len(order) if len(order) <= MIN_SPLIT_CLASSES else max(1, round(len(order) * method_options.common))
            )
            module = CascadeSoftmax(layer, basis, order, common, method_options.candidates, method_options.full_view)
            progress("screen and tail", 2, 3)
            module.calibrate(rows[shuffled[-CASCADE_CALIBRATION_ROWS:]], method_options.rare_share)
        split = common < len(order)  # else there is nothing to open, and no finite margin
        settings = CascadeSettings(
            candidates=method_options.candidates,
            full_view=method_options.full_view,
            margin=module.margin if split else 0.0,
            common=common,
            stride=module.stride,
            tail_limit=module.tail_limit,
        )
        fit = {
            "width": method_options.width,
            "common_share": method_options.common,
            "rare_share": method_options.rare_share,
        }
        return Fitted(module, estimate_cost(dense, module, method_options), settings, fit)

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        module = fitted.module
        assert isinstance(module, CascadeSoftmax)
        return write_graphs(folder, dense, module)

    def make_index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        module = fitted.module
        assert isinstance(module, CascadeSoftmax)
        return {"order": module.order.numpy()}


def fill_defaults(options: CascadeOptions, dense: Dense) -> CascadeOptions:
    """The options with those filled in that follow from the layer's size; raises BadInput."""
    full_view = min(options.full_view, dense.real_classes)
    defaults = {
        "width": choose_width(options.width, dense.dim * 2 // 9, dense),
        "candidates": choose_candidates(options.candidates, max(64, dense.classes // 128), full_view, dense),
        "full_view": full_view,
    }
    return options.model_copy(update=defaults)


def estimate_cost(dense: Dense, module: CascadeSoftmax, options: CascadeOptions) -> Cost:
    """Screen, previews, int8 rows and exact rows, against V x d; int8 counts as one multiply-add and one byte."""
    assert options.width is not None
    assert options.candidates is not None
    rare = len(module.order) - module.common
    screen = dense.dim * (options.width + 2)
    previews = (module.common + options.rare_share * rare) * options.width
    codes, exact = options.candidates * dense.dim, options.full_view * dense.dim
    whole = dense.classes * dense.dim
    return Cost(
        macs=(screen + previews + codes + exact) / whole,
        bytes=(4 * screen + previews + codes + 4 * exact) / (4 * whole),
    )
