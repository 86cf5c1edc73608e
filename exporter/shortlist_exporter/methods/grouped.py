"""Method `grouped`: groups of classes, small previews of those in the best, int8 and exact rows; plan `grouped`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from pydantic import Field
from shortlist.bundle.settings import PREVIEWED_DIVISOR, GroupedSettings
from shortlist.errors import BadInput
from shortlist_models import context_basis
from shortlist_models.rescored.grouped import MIN_COARSE_COLUMNS, GroupedSoftmax, Widths
from shortlist_models.rescored.groups import group_similar_classes

from shortlist_exporter.core.types import Cost, FloatArray, Progress, count_rows, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.grouped import write_graphs
from shortlist_exporter.inputs.sources import Dense

from .base import DenseMethod, Fitted, Options, choose_candidates, choose_width, parse_options, shuffle_rows

TAIL_FIT_ROWS = 4_000  # contexts that calibrate the tail
TAIL_FIT_LOGITS = TAIL_FIT_ROWS << 18  # over all classes: of more than 262,144, fewer contexts calibrate it
MIN_TAIL_FIT_ROWS, TAIL_FIT_ROWS_PER_DIM = 1_000, 8
TERM_FIT_ROWS = 64_000  # and one of terms
# How long groups take, a context of the tail, and what keeps a promise, in logits of all classes.
GROUPING_ROWS, TAIL_PASSES, PROMISE_ROWS = 6_000, 2, 15_000
INT8_COLUMNS_STEP = 4  # columns that compiled loops multiply at once: the int8 columns are a multiple
MIN_CANDIDATES = 128  # with as many, k up to 10 needs no wider search
GROUP_CLASSES = 64  # in the mean
MIN_OPENED, MAX_OPENED = 3072, 1 << 17  # classes; of millions, rows that need more get another look
SMALL_OPENED = 16_384  # up to so many, a third of all classes is opened; beyond, a sixth or as many
MANY_CLASSES = 1 << 17, 1 << 20  # more than the first number and up to the other, of which first looks go further
MAX_CANDIDATES = 4096
LEADER_SHARE = 0.1  # of the contexts: a class that is best in more of them is a group of its own
LEADER_ROWS, LEADER_CHUNK = 512, 64  # contexts by which such classes are found, so many at a time
MAX_LOGIT = float(np.sqrt(np.finfo(np.float32).max))
OVERFLOW = "the squares of these contexts' logits overflow float32: divide the weight or the contexts"


class Shares(NamedTuple):
    """How far a first look goes by default.

    width: of the columns. opened: of all classes. previewed: of those that are opened; fewer lose more that are likely.
    """

    width: Fraction
    opened: Fraction
    previewed: Fraction


USUAL_SHARES = Shares(Fraction(5, 9), Fraction(1, 6), Fraction(4, 7))
MANY_SHARES = Shares(Fraction(4, 5), Fraction(1, 4), Fraction(1, 2))


class GroupedOptions(Options):
    """`--set` options of method grouped."""

    width: int | None = Field(default=None, ge=1, description="W of the previews; 5d/9, or 4d/5 of many classes")
    int8_width: int = Field(default=4, ge=1, description="columns of the previews in int8, the others in 2 bits")
    groups: int | None = Field(default=None, ge=1, description="groups of classes; V/64 by default")
    centre_width: int | None = Field(default=None, ge=1, description="columns for groups and first previews; 2W/5")
    opened: int | None = Field(
        default=None, ge=1, description="M classes of groups opened; V/3 to 16,384, V/6 or V/4 to 131,072"
    )
    previewed: int | None = Field(
        default=None, ge=1, description="of those, classes previewed by all columns; 4/7 or 1/2 M"
    )
    candidates: int | None = Field(default=None, ge=1, description="classes scored by int8 rows; V/192, 128 to 4,096")
    full_view: int = Field(default=7, ge=5, description="classes then scored exactly")
    tail_terms: int = Field(default=0, ge=0, description="terms of the normaliser's tail; 0: a linear function")
    promise: float = Field(
        default=0.99,
        ge=0,
        lt=1,
        description="rows are searched on until all asked for are there so probably; 0: all alike",
    )


class GroupedMethod(DenseMethod):
    """Groups of classes; `shortlist_models.rescored.grouped` has the algorithm and its sources."""

    plan = "grouped"
    ways_to_find_more = "use a larger opened, candidates or promise, as in --set promise=0.999"
    ways_to_normalize = (
        "where they matter give --set tail_terms=64 or more, or keep the dense layer and ask with `exact`"
    )

    def count_fit_rows(self, dense: Dense, rows: int) -> int:
        return GROUPING_ROWS + TAIL_PASSES * min(count_tail_rows(dense), rows) + PROMISE_ROWS

    def fit(
        self, dense: Dense, contexts: FloatArray, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Fit the basis, the groups, then the tail; the seed chooses the first centres and the tail's contexts."""
        method_options = fill_defaults(parse_options(GroupedOptions, options), dense)
        check_squares(dense, contexts)
        rows, layer, shuffled = torch.from_numpy(contexts), dense.module, shuffle_rows(len(contexts), seed)
        with torch.inference_mode():
            progress("decomposition", 0, 3)
            widths = Widths(**method_options.model_dump(include=set(Widths._fields)))
            row_mean = layer.weight.mean(dim=0)
            basis = context_basis(layer.weight, rows, method_options.width or dense.dim, row_mean)
            progress("groups", 1, 3)
            real = torch.from_numpy(np.setdiff1d(np.arange(dense.classes), dense.padded))
            bias = None if layer.bias is None else layer.bias[real]
            preview = basis.preview if len(real) == dense.classes else basis.preview[real]
            leaders = find_leaders(dense, rows[shuffled[:LEADER_ROWS]], real, method_options)
            groups = group_similar_classes(preview, bias, method_options.groups or 1, seed, leaders)
            del preview
            module = GroupedSoftmax(layer, basis, real, groups, widths, rows[shuffled[:TAIL_FIT_ROWS]], seed, row_mean)
            del basis, groups  # of millions of classes, they are more than half the weights
            fitted_rows = TERM_FIT_ROWS if method_options.tail_terms else count_tail_rows(dense)
        with torch.inference_mode(not method_options.tail_terms):  # terms are fitted by their gradients
            count = count_rows(progress, "tail", contexts[:fitted_rows])
            module.fit_tail(rows[shuffled[:fitted_rows]], method_options.tail_terms, seed, count)
        if not math.isfinite(module.tail_limit):
            raise BadInput(OVERFLOW)
        searched = method_options.model_dump(include={"opened", "previewed", "candidates", "full_view"})
        beside = module.full_view if method_options.tail_terms else None
        settings = GroupedSettings(**searched, tail_limit=module.tail_limit, tail_beside=beside)
        fit = method_options.model_dump(exclude={*searched, "promise"}) | {
            "groups": len(module.groups.reach),
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
        if len(module.tail_terms.offsets):
            tensors |= {"tail_terms": module.tail_terms.vectors, "tail_term_offsets": module.tail_terms.offsets}
        tensors |= {"preview": module.preview.to(torch.int8), "preview_raise": module.preview_raise}
        scales = {"scale": module.scale, "code_scale": module.code_scale, "projection_scale": module.projection_scale}
        tensors |= {"group_codes": module.groups.codes.to(torch.int8), "group_reach": module.groups.reach}
        tensors |= {"group_raise": module.groups.raises}
        scales |= {"group_scale": module.groups.scale, "group_fine_scale": module.groups.fine_scale}
        if module.fine.numel():
            tensors["fine"], scales["fine_scale"] = module.fine.to(torch.int8), module.fine_scale
        tensors |= {name: scale[:, 0] for name, scale in scales.items()}
        tensors |= {"row_mean": module.row_mean} | ({} if module.bias is None else {"bias": module.bias})
        return {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in tensors.items()}


def find_leaders(
    dense: Dense, contexts: torch.Tensor, real: torch.Tensor, options: GroupedOptions
) -> torch.Tensor | None:
    """Positions in `real` of the classes that are best in many of `contexts` [n, d], as the blank of a recogniser is.

    Among the classes of a group such a class's lead would hardly be seen, and in some rows its group not be opened.
    None where all groups are opened; and no more than leave a class for each of the other groups.
    """
    if options.opened == len(real):
        return None
    best = torch.cat([dense.module.logits(part).argmax(dim=1) for part in torch.split(contexts, LEADER_CHUNK)])
    counts = torch.bincount(best, minlength=dense.classes)[real]
    return (counts > LEADER_SHARE * len(contexts)).nonzero()[: len(real) - (options.groups or 1), 0]


def check_squares(dense: Dense, contexts: FloatArray) -> None:
    """Raise BadInput where the square of a logit may be over what float32 holds: one row of a broken file is enough."""
    weight, context = (np.maximum(x.max(axis=0), -x.min(axis=0)).astype(np.float64) for x in (dense.weight, contexts))
    if weight @ context > MAX_LOGIT:
        raise BadInput(OVERFLOW)


def count_candidates(dense: Dense) -> int:
    """How many classes are scored by int8 rows where no option says it."""
    return min(max(MIN_CANDIDATES, dense.classes // 192), MAX_CANDIDATES)


def count_opened(classes: int) -> int:
    """How many classes the groups hold that are opened, where no option says it."""
    share = int(classes * choose_shares(classes).opened)
    return max(MIN_OPENED, min(classes // 3, SMALL_OPENED), min(share, MAX_OPENED))


def choose_shares(classes: int) -> Shares:
    """How far a first look goes, where no option says it: further where many classes are nearly as good as the best.

    Of millions of classes, a catalogue's, tables are to stay small.
    """
    least, most = MANY_CLASSES
    return MANY_SHARES if least < classes <= most else USUAL_SHARES


def count_tail_rows(dense: Dense) -> int:
    """How many contexts calibrate a linear tail: fewer for millions of classes, each of which is counted."""
    least = max(MIN_TAIL_FIT_ROWS, TAIL_FIT_ROWS_PER_DIM * dense.dim, TAIL_FIT_LOGITS // dense.classes)
    return min(TAIL_FIT_ROWS, least)


def fill_defaults(options: GroupedOptions, dense: Dense) -> GroupedOptions:
    """The options with those filled in that follow from the layer's size; raises BadInput."""
    real, full_view = dense.real_classes, min(options.full_view, dense.real_classes)
    shares = choose_shares(dense.classes)
    width = choose_width(options.width, round(dense.dim * shares.width), dense)
    candidates = choose_candidates(options.candidates, count_candidates(dense), full_view, dense)
    for name, given in (("opened", options.opened), ("previewed", options.previewed)):
        if given is not None and given < candidates:
            raise BadInput(f"option {name}={given} is under the {candidates} candidates: set more, or fewer of these")
    int8_width = min(options.int8_width + -options.int8_width % INT8_COLUMNS_STEP, width)
    centre_width = min(options.centre_width or -(-2 * width // 5), width)
    opened = options.opened or max(count_opened(dense.classes), candidates)
    has_rest = count_first_columns(width, int8_width, centre_width) < width
    previewed = options.previewed or (max(int(opened * shares.previewed), candidates) if has_rest else real)
    defaults = {
        "width": width,
        "int8_width": int8_width,
        "groups": min(options.groups or max(1, dense.classes // GROUP_CLASSES), real),
        "centre_width": centre_width,
        "opened": min(opened, real),
        "previewed": min(previewed, real),
        "candidates": candidates,
        "full_view": full_view,
        "tail_terms": min(options.tail_terms, real),
    }
    return options.model_copy(update=defaults)


def count_first_columns(width: int, int8_width: int, centre_width: int) -> int:
    """How many columns all classes of a group that is opened are previewed by."""
    return min(max(centre_width, int8_width + MIN_COARSE_COLUMNS), width)


def estimate_cost(options: Mapping[str, Any], dense: Dense) -> Cost:
    """Screen and tail, groups, previews by some and by all columns, int8 and exact rows, against V x d.

    options: by name, as a manifest's fit and settings have them together.

    int8 and 2 bits count as one multiply-add. Bytes are those that compiled loops read: graphs keep the projection in
    float32, and preview all classes.
    """
    width, wide, compared, opened = (options[name] for name in ("width", "int8_width", "centre_width", "opened"))
    previewed = min(max(options["previewed"], opened // PREVIEWED_DIVISOR), opened)
    tail = dense.dim * (1 + options["tail_terms"])
    screen, centres = dense.dim * width + tail, options["groups"] * compared
    coarse = count_first_columns(width, wide, compared)
    previews = opened * coarse + previewed * (width - coarse)
    preview_bytes = (previews + 3 * wide * opened) / 4
    codes, exact = options["candidates"] * dense.dim, options["full_view"] * dense.dim
    whole = dense.classes * dense.dim
    return Cost(
        macs=(screen + centres + previews + codes + exact) / whole,
        bytes=(screen + 3 * tail + centres + preview_bytes + codes + 4 * exact) / (4 * whole),
    )
