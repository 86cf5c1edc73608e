"""Method `l2s`: Learning to Screen; plan `screen`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from shortlist.bundle.settings import ScreenSettings
from shortlist.errors import BadInput
from shortlist_models import context_basis
from shortlist_models.l2s.candidate_sets import Background, BestClasses, ScreenOptions, find_best_classes
from shortlist_models.l2s.screened import ScreenedSoftmax, SecondStage
from shortlist_models.l2s.training import train_screen
from shortlist_models.rescored.groups import group_similar_classes
from shortlist_models.tail import start_terms

from shortlist_exporter.core.types import Cost, FloatArray, Progress, quiet
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.screen import write_graphs
from shortlist_exporter.inputs.sources import Dense

from .base import DenseMethod, Fitted, Options, check_width, parse_options, shuffle_rows
from .supervised import translate_errors

BACKGROUND_CHUNK_ROWS = 256
BACKGROUND_CLASSES = 1000  # of a context, the most probable ones
SCREEN_CALIBRATION_ROWS = 20_000
TERM_FIT_ROWS = 64_000  # contexts that terms of the tail are fitted to


class L2sOptions(Options):
    """`--set` options of method l2s. Defaults of lam and gamma are the paper's."""

    clusters: int = Field(default=100, ge=1, description="r")
    budget: float | None = Field(default=None, gt=0, description="B, mean candidates per query; V/36 by default")
    depth: int = Field(default=5, ge=1, description="exact best classes that a set should hold: 10 for a P@10 promise")
    train: bool = Field(default=True, description="false: the k-means screen alone")
    rounds: int = Field(default=5, ge=0)
    epochs: int = Field(default=2, ge=1)
    learning_rate: float = Field(default=0.01, gt=0)
    lam: float = Field(default=0.0003, ge=0)
    gamma: float = Field(default=10.0, ge=0)
    smoothing: float = Field(default=5.0, ge=0, description="pseudo-contexts that a cluster borrows from all of them")
    background: int = Field(default=12000, ge=0, description="contexts whose probabilities fill the sets up; 0: none")
    probes: int = Field(default=1, ge=1, description="clusters that one query opens")
    always_top: int = Field(default=0, ge=0, description="so many of the most frequent answers are in every set")
    always: str = Field(default="", description="ids in every set, as 1,2,3")
    second_stage: Literal["none", "int8"] = Field(default="none", description="preview inside the sets, then exact")
    width: int | None = Field(default=None, ge=1, description="W of the second stage; 2d/9 by default")
    full_view: int | None = Field(default=None, ge=1, description="N of the second stage; V/192 by default")
    second_probe: float = Field(default=0.0, ge=0, lt=1, description="share of queries, by small margin, with one more")
    tail_rank: int = Field(default=0, ge=0, description="rank of the low-rank tail; 0: a constant a cluster")
    tail_terms: int = Field(default=0, ge=0, description="terms of the second stage's tail; 0: a constant a cluster")
    fallback: float = Field(default=0.0, ge=0, lt=1, description="share of queries, by small margin, that go to dense")
    checkpoint: str = Field(default="", description="file that training resumes from")


class L2sMethod(DenseMethod):
    """Learning to Screen; `shortlist_models.l2s.training` has the algorithm and its source."""

    plan = "screen"
    ways_to_find_more = "use a larger budget or probes, as in --set probes=2"

    def fit(
        self, dense: Dense, contexts: FloatArray, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Find the exact best classes, train the screen and its sets, calibrate their tails."""
        method_options = fill_defaults(parse_options(L2sOptions, options), dense)
        check_options(method_options, dense, len(contexts))
        rows = torch.from_numpy(contexts)
        best = find_best_classes(dense.module, rows, method_options.depth, progress)
        with translate_errors():
            screen = train_screen(
                rows,
                best,
                make_screen_options(method_options, seed),
                choose_always(method_options, best),
                progress,
                Path(method_options.checkpoint) if method_options.checkpoint else None,
                measure_background(dense, rows, method_options.background, seed, progress),
            )
        stage = fit_second_stage(method_options, dense, rows)
        module = ScreenedSoftmax(dense.module, screen.vectors, screen.sets, method_options.probes, stage)
        if method_options.tail_rank:
            module.low_rank = context_basis(torch.from_numpy(dense.weight), rows, method_options.tail_rank)
        return calibrate(module, dense, method_options, rows, seed, screen.history, progress)

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        module = fitted.module
        assert isinstance(module, ScreenedSoftmax)
        return write_graphs(folder, dense, module)

    def make_index(self, fitted: Fitted) -> dict[str, np.ndarray[Any, Any]]:
        module = fitted.module
        assert isinstance(module, ScreenedSoftmax)
        sizes = [0, *(len(ids) for ids in module.sets)]
        return {
            "ids": torch.cat(module.sets).numpy(),
            "offsets": np.cumsum(sizes).astype(np.int64),
            "tail": module.tail.numpy(),
        }


def calibrate(
    module: ScreenedSoftmax,
    dense: Dense,
    method_options: L2sOptions,
    rows: torch.Tensor,
    seed: int,
    history: list[Any],
    progress: Progress = quiet,
) -> Fitted:
    """Set margins and tails of a trained screen for its number of probes."""
    sample = rows[shuffle_rows(len(rows), seed)[:SCREEN_CALIBRATION_ROWS]]
    module.probes = method_options.probes
    module.probe_margin = calibrate_margin(module, sample, method_options.second_probe)
    if method_options.tail_terms:
        progress("tail", 0, 1)
        fit_tail_terms(module, dense, method_options, rows[shuffle_rows(len(rows), seed)[:TERM_FIT_ROWS]], seed)
    elif not method_options.tail_rank:
        module.calibrate_tail(sample)
    candidates = module.count_candidates(sample)
    staged = method_options.second_stage != "none"
    settings = ScreenSettings(
        probes=method_options.probes,
        probe_margin=module.probe_margin,
        dense_margin=0.0 if method_options.tail_terms else calibrate_margin(module, sample, method_options.fallback),
        second_stage=staged,
        full_view=(method_options.full_view or 0) if staged else 0,
        **calibrate_terms(module, sample, method_options),
    )
    fit = method_options.model_dump(exclude={"checkpoint", "probes", "full_view"})
    return Fitted(
        module,
        estimate_cost(dense, method_options, candidates),
        settings,
        fit | {"candidates": candidates, "history": history},
    )


def fit_tail_terms(module: ScreenedSoftmax, dense: Dense, options: L2sOptions, rows: torch.Tensor, seed: int) -> None:
    """Fit the terms of a screen with a second stage to `rows` [n, d], beside the sets that these open."""
    real = torch.from_numpy(np.setdiff1d(np.arange(dense.classes), dense.padded))
    preview = context_basis(dense.module.weight, rows, options.width or dense.dim).preview[real]
    similar = real[group_similar_classes(preview, None, min(options.tail_terms, len(real)), seed).order]
    start = start_terms(dense.module.weight, dense.module.bias, similar, min(options.tail_terms, len(real)))
    module.fit_tail_terms(rows, start, seed)


def calibrate_terms(module: ScreenedSoftmax, sample: torch.Tensor, options: L2sOptions) -> dict[str, Any]:
    """The settings of a tail of terms; none without."""
    if not options.tail_terms:
        return {}
    return {"tail_limit": module.tail_limit, "dense_tail": module.calibrate_dense_tail(sample, options.fallback)}


def calibrate_margin(module: ScreenedSoftmax, sample: torch.Tensor, share: float) -> float:
    """The margin that `share` of the sample is under; raises BadInput where the screen's scores overflow."""
    margin = module.calibrate_margin(sample, share)
    if not math.isfinite(margin):
        raise BadInput("the contexts are so large that the screen's scores overflow float32: scale them down")
    return margin


def change_probes(fitted: Fitted, dense: Dense, contexts: FloatArray, setting: dict[str, int], seed: int) -> Fitted:
    """`fitted` with another number of probes. Equals a fit with it, but without training."""
    module, settings = fitted.module, fitted.settings
    assert isinstance(module, ScreenedSoftmax)
    assert isinstance(settings, ScreenSettings)
    fit_options = {name: value for name, value in fitted.fit.items() if name in L2sOptions.model_fields}
    method_options = L2sOptions(**(fit_options | {"full_view": settings.full_view or None} | setting))
    check_options(method_options, dense, len(contexts))
    return calibrate(module, dense, method_options, torch.from_numpy(contexts), seed, fitted.fit["history"])


def fill_defaults(options: L2sOptions, dense: Dense) -> L2sOptions:
    """The options with those filled in that follow from the layer's size."""
    depth = options.depth if "depth" in options.model_fields_set else min(options.depth, dense.real_classes)
    budget = options.budget or max(float(depth), dense.classes / 36)
    defaults: dict[str, Any] = {"depth": depth, "budget": budget}
    if options.second_stage != "none":
        defaults["width"] = options.width or max(1, dense.dim * 2 // 9)
        defaults["full_view"] = options.full_view or max(1, dense.classes // 192)
    return options.model_copy(update=defaults)


def check_options(options: L2sOptions, dense: Dense, rows: int) -> None:
    """Raise BadInput for options that cannot work, before any training."""
    if options.clusters > rows:
        raise BadInput(
            f"there are {rows} contexts to fit {options.clusters} clusters: give more, or --set clusters=..."
        )
    if options.depth > dense.real_classes:
        raise BadInput(f"option depth={options.depth} is over the layer's {dense.real_classes} classes: choose less")
    assert options.budget is not None
    if options.budget < options.depth:
        raise BadInput(f"option budget={options.budget:g} is under depth={options.depth}: a set must hold an answer")
    if options.probes > options.clusters:
        raise BadInput(f"option probes={options.probes} is over clusters={options.clusters}: choose fewer")
    check_tails(options, dense)
    if options.width is not None:
        check_width(options.width, dense)
    outside = [i for i in parse_ids(options.always) if not 0 <= i < dense.classes]
    if outside:
        raise BadInput(f"option always holds id {outside[0]} but classes go from 0 to {dense.classes - 1}")


def check_tails(options: L2sOptions, dense: Dense) -> None:
    """Raise BadInput for a tail that the layer or the sets cannot have."""
    if options.tail_rank > dense.dim:
        raise BadInput(f"option tail_rank={options.tail_rank} is over d = {dense.dim}: choose a lower rank")
    if options.tail_terms and (options.second_stage == "none" or options.tail_rank):
        raise BadInput("option tail_terms is of a second stage alone: --set second_stage=int8, leave tail_rank out")


def parse_ids(text: str) -> list[int]:
    """Parse `1,2,3`; raises BadInput."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise BadInput(f"option always={text} is no list of ids: write 1,2,3") from None


def measure_background(
    dense: Dense, contexts: torch.Tensor, rows: int, seed: int, progress: Progress
) -> Background | None:
    """Probabilities of the leading classes of a sample of `rows` contexts, at temperature 2; None for no rows."""
    if rows == 0:
        return None
    sample = shuffle_rows(len(contexts), seed)[:rows]
    module, ids, values = dense.module, [], []
    depth = min(BACKGROUND_CLASSES, dense.real_classes)
    with torch.inference_mode():
        for start in range(0, len(sample), BACKGROUND_CHUNK_ROWS):
            softened = (module.logits(contexts[sample[start : start + BACKGROUND_CHUNK_ROWS]]) / 2).softmax(dim=1)
            best = softened.topk(depth, dim=1, sorted=False)
            ids.append(best.indices.int())
            values.append(best.values)
            progress("background of the sets", min(start + BACKGROUND_CHUNK_ROWS, len(sample)), len(sample))
    return Background(sample, torch.cat(ids).clone(), torch.cat(values).clone())


def make_screen_options(options: L2sOptions, seed: int) -> ScreenOptions:
    """The options of the screen's training."""
    assert options.budget is not None
    return ScreenOptions(
        clusters=options.clusters,
        budget=options.budget,
        lam=options.lam,
        gamma=options.gamma,
        smoothing=options.smoothing,
        rounds=options.rounds if options.train else 0,
        epochs=options.epochs,
        learning_rate=options.learning_rate,
        seed=seed,
    )


def choose_always(options: L2sOptions, best: BestClasses) -> torch.Tensor | None:
    """Ids [m] that every set holds: the most frequent best classes, and those named; None for none."""
    frequent = torch.bincount(best.ids.reshape(-1), minlength=best.classes).argsort(descending=True, stable=True)
    ids = torch.cat([frequent[: options.always_top], torch.tensor(parse_ids(options.always), dtype=torch.int64)])
    return torch.unique(ids) if len(ids) else None


def fit_second_stage(options: L2sOptions, dense: Dense, contexts: torch.Tensor) -> SecondStage | None:
    """An int8 preview of all classes in the contexts' basis, of which each set takes its rows; None for none."""
    if options.second_stage == "none":
        return None
    assert options.width is not None
    assert options.full_view is not None
    basis = context_basis(torch.from_numpy(dense.weight), contexts, options.width)
    return SecondStage.from_basis(basis, options.full_view)


def estimate_cost(dense: Dense, options: L2sOptions, mean: float) -> Cost:
    """Multiply-adds and bytes of a query, relative to the dense layer's.

    mean: classes in the sets that a query opens. Counted are the screen, the sets (or their previews and the rows
    scored exactly), the low-rank tail, and the share of queries that go to dense.
    """
    whole = dense.classes * dense.dim
    screen = options.clusters * dense.dim
    if options.second_stage == "none":
        macs = screen + mean * dense.dim
        read = 4 * macs
    else:
        assert options.width is not None
        assert options.full_view is not None
        exact = min(mean, options.full_view) * dense.dim
        macs = screen + dense.dim * options.width + mean * options.width + exact
        read = 4 * (screen + dense.dim * options.width + exact) + mean * options.width
    tail = options.tail_rank * (dense.classes + dense.dim) + options.tail_terms * dense.dim
    macs, read = macs + tail, read + 4 * tail
    share = options.fallback
    return Cost(macs=(1 - share) * macs / whole + share, bytes=(1 - share) * read / (4 * whole) + share)
