"""Method `adaptive`: an adaptive softmax, trained here or with torch; plan `adaptive`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy.typing as npt
import torch
from pydantic import Field
from shortlist.bundle.settings import AdaptiveSettings
from shortlist.errors import BadInput
from shortlist_models.adaptive.cost_model import fit_cost_model, time_training
from shortlist_models.adaptive.cutoffs import (
    Cuts,
    Layer,
    choose_cuts,
    choose_fastest,
    list_cut_points,
    measure_opening_shares,
)
from shortlist_models.adaptive.softmax import (
    AdaptiveSoftmax,
    check_cutoffs,
    check_order,
    check_widths,
    compute_tail_widths,
)
from shortlist_models.adaptive.tail_preview import TailPreview
from shortlist_models.adaptive.training import ORIGIN, name_head_training
from shortlist_models.checkpoint import load_checkpoint
from torch import Tensor

from shortlist_exporter.core.types import Cost, Progress, quiet
from shortlist_exporter.graphs.adaptive.fused import write_adaptive
from shortlist_exporter.graphs.adaptive.parts import make_index
from shortlist_exporter.graphs.builder import GraphFiles
from shortlist_exporter.graphs.serving_cost import time_serving
from shortlist_exporter.inputs.formats.torch_file import read_torch_tensors, select_module
from shortlist_exporter.inputs.sources import Contexts, Dense

from .base import Fitted, Options, TrainedMethod, parse_options
from .supervised import (
    RankedExamples,
    check_layer_shape,
    make_train_options,
    note_absent_classes,
    parse_numbers,
    rank_examples,
    train_module,
    translate_errors,
)

OPENING_SAMPLE_ROWS = 2000  # contexts that measure how often a tail must be opened


class AdaptiveOptions(Options):
    """`--set` options of method adaptive. Without cutoffs, the least predicted time chooses them."""

    cutoffs: str = Field(default="", description="ranks by frequency at which tails begin, as 2000,6000")
    planned_for: Literal["serving", "training"] = Field(
        default="serving", description="what the cutoffs are to make fast"
    )
    planned_k: int = Field(default=5, ge=1, description="k of the requests that they are chosen for")
    tails: int = Field(default=5, ge=1, le=5, description="at most so many")
    div_value: float = Field(default=4.0, ge=1, description="each tail is so many times narrower than the one before")
    head_bias: bool = True
    epochs: int = Field(default=4, ge=1)
    batch: int = Field(default=512, ge=1)
    learning_rate: float = Field(default=0.003, gt=0)
    checkpoint: str = Field(default="", description="file that training resumes from")
    preview: int = Field(default=0, ge=0, description="W of an SVD preview in tails that are wider; 0: none")
    full_view: int = Field(default=256, ge=1, description="N classes of a previewed tail that are scored exactly")


class AdaptiveMethod(TrainedMethod):
    """An adaptive softmax; `shortlist_models.adaptive.softmax` has the algorithm and its source."""

    plan = "adaptive"
    training_options = (*TrainedMethod.training_options, "planned_for", "tails", "div_value", "head_bias")

    def learn(
        self, dense: Dense, examples: Contexts, options: dict[str, str], seed: int, progress: Progress = quiet
    ) -> Fitted:
        """Order classes by falling frequency in the targets, choose the cutoffs, then train; raises BadInput."""
        method_options = parse_options(AdaptiveOptions, options)
        ranked = rank_examples(examples, dense)
        with translate_errors():
            cutoffs = choose_cutoffs(method_options, dense, ranked, seed, progress)
            torch.manual_seed(seed)
            module = make_module(method_options, dense, ranked, cutoffs)
        loss = lambda rows, gold: module(rows, gold).loss  # noqa: E731
        result = train_module(module, loss, ranked, method_options, seed, progress, describe_plan(method_options))
        return make_fitted(module, dense, ranked.contexts, method_options, result)

    def restore(self, dense: Dense, state: dict[str, Tensor], examples: Contexts, options: dict[str, str]) -> Fitted:
        """Restore from the state dict of torch's module or of this project's.

        `order` [V] maps positions to the user's ids.
        """
        method_options = parse_options(AdaptiveOptions, options)
        with translate_errors():
            module = AdaptiveSoftmax.from_state(state)
            if examples.targets is not None and module.n_classes == dense.classes:
                counts = torch.bincount(torch.from_numpy(examples.targets), minlength=dense.classes)
                check_order(counts[module.order], module.cutoffs[:-1])
        check_layer_shape((module.n_classes, module.in_features), dense)
        return make_fitted(module, dense, torch.from_numpy(examples.contexts), method_options, {})

    def write_graphs(self, fitted: Fitted, dense: Dense, folder: Path) -> GraphFiles:
        del dense
        assert isinstance(fitted.module, Previewed)
        return write_adaptive(folder, fitted.module.softmax, fitted.module.previews)

    def make_index(self, fitted: Fitted) -> dict[str, npt.NDArray[Any]]:
        assert isinstance(fitted.module, Previewed)
        return make_index(fitted.module.softmax.sections())


class Previewed(torch.nn.Module):
    """An adaptive softmax and the previews, by tail, that are exported beside it.

    `log_prob` is that without previews.
    """

    def __init__(self, softmax: AdaptiveSoftmax, previews: dict[int, TailPreview]) -> None:
        super().__init__()
        self.softmax, self.previews = softmax, previews

    def log_prob(self, contexts: Tensor) -> Tensor:
        """Contexts [B, d] -> log-probabilities [B, V]."""
        return self.softmax.log_prob(contexts)


def make_module(
    options: AdaptiveOptions, dense: Dense, ranked: RankedExamples, cutoffs: Sequence[int]
) -> AdaptiveSoftmax:
    """The module before its training; raises ValueError for cutoffs that do not fit the layer."""
    return AdaptiveSoftmax(dense.dim, dense.classes, cutoffs, options.div_value, options.head_bias, ranked.order)


def describe_plan(options: AdaptiveOptions) -> str:
    """The options that cutoffs follow from, in one string."""
    if options.cutoffs:
        return f"cutoffs={options.cutoffs}"
    return f"tails={options.tails} planned_for={options.planned_for} planned_k={options.planned_k}"


def choose_cutoffs(
    options: AdaptiveOptions, dense: Dense, ranked: RankedExamples, seed: int, progress: Progress
) -> list[int]:
    """The cutoffs of the options, else of the interrupted training, else of the least predicted time.

    Raises ValueError, BadInput.
    """
    if options.cutoffs:
        cutoffs = parse_numbers("cutoffs", options.cutoffs)
        check_cutoffs(dense.classes, cutoffs)
        check_widths(compute_tail_widths(dense.dim, len(cutoffs), options.div_value))
        return cutoffs
    cutoffs_before = find_checkpoint_cutoffs(options, dense, ranked, seed)
    if cutoffs_before:
        return cutoffs_before
    progress("cost of this machine", 0, 1)
    cuts = plan_cuts(options, dense, ranked)
    if not cuts.pays:
        raise BadInput(f"{cuts.sentence()}, or --set cutoffs=... to have it all the same")
    return list(cuts.cutoffs)


def find_checkpoint_cutoffs(options: AdaptiveOptions, dense: Dense, ranked: RankedExamples, seed: int) -> list[int]:
    """The cutoffs of an interrupted training, which goes on with them: measured times differ from run to run.

    None where the checkpoint is of another training, or its cutoffs were planned by other options. Raises ValueError,
    BadInput where the file is no checkpoint of an adaptive softmax.
    """
    cutoffs = read_checkpoint_cutoffs(options.checkpoint)
    try:
        module = make_module(options, dense, ranked, cutoffs)
    except ValueError:  # of a layer of other sizes
        return []
    name = name_head_training(module, ranked.contexts, ranked.targets, make_train_options(options, seed))
    state = load_checkpoint(Path(options.checkpoint), name)
    return cutoffs if state is not None and state.get(ORIGIN) == describe_plan(options) else []


def read_checkpoint_cutoffs(checkpoint: str) -> list[int]:
    """The cutoffs of the module in a checkpoint, none without a file.

    Raises ValueError, BadInput where the file is no checkpoint of an adaptive softmax.
    """
    if not checkpoint or not Path(checkpoint).is_file():
        return []
    module = select_module(read_torch_tensors(Path(checkpoint)).tensors)
    return AdaptiveSoftmax.from_state(module).cutoffs[:-1]


def plan_cuts(options: AdaptiveOptions, dense: Dense, ranked: RankedExamples) -> Cuts:
    """The cuts of least predicted time on this machine, for serving one row at a time or for training."""
    counts, contexts = ranked.counts, ranked.contexts
    points, tails = list_cut_points(counts), range(1, options.tails + 1)
    if options.planned_for == "training":
        layer = Layer(dense.classes, dense.dim, options.batch, options.div_value)
        model = fit_cost_model(time_training(dense.dim, options.batch))
        return choose_fastest(choose_cuts(model, layer, counts, points, tails=tails))
    layer = Layer(dense.classes, dense.dim, 1, options.div_value)
    step = max(1, len(contexts) // OPENING_SAMPLE_ROWS)
    with torch.inference_mode():
        logprobs = dense.module.log_prob(contexts[::step])[:, ranked.order]
        openings = measure_opening_shares(logprobs, points, min(options.planned_k, dense.classes))
    return choose_fastest(choose_cuts(fit_cost_model(time_serving(dense.dim)), layer, counts, points, openings, tails))


def make_fitted(
    module: AdaptiveSoftmax, dense: Dense, contexts: Tensor, options: AdaptiveOptions, fit: dict[str, Any]
) -> Fitted:
    """The fitted head: its previews, how often each tail is opened, and what that costs."""
    sample = contexts[:: max(1, len(contexts) // OPENING_SAMPLE_ROWS)]
    previews = fit_tail_previews(module, sample, options)
    opening_shares = measure_tail_openings(module, sample, min(options.planned_k, dense.classes))
    macs = count_multiply_adds(module, opening_shares, previews) / (dense.classes * dense.dim)
    fit = options.model_dump(exclude={"checkpoint", "cutoffs"}) | fit
    fit |= {
        "cutoffs": module.cutoffs[:-1],
        "widths": module.widths,
        "opened": opening_shares,
        "previewed": sorted(previews),
    }
    return Fitted(
        Previewed(module, previews),
        Cost(macs=macs, bytes=macs),
        AdaptiveSettings(),
        fit,
        note_absent_classes(fit),
        normalizer="estimated" if previews else None,
    )


def fit_tail_previews(module: AdaptiveSoftmax, contexts: Tensor, options: AdaptiveOptions) -> dict[int, TailPreview]:
    """Previews, by tail, of the tails that are wider than the preview and larger than its full view."""
    previews = {}
    for number, (narrow, last) in enumerate(module.tail_layers()):
        if 0 < options.preview < len(narrow) and options.full_view < len(last):
            previews[number] = TailPreview.fit(last, contexts @ narrow.T, options.preview, options.full_view)
    return previews


def measure_tail_openings(module: AdaptiveSoftmax, contexts: Tensor, k: int) -> list[float]:
    """The share of contexts that must open each tail to find their k best classes."""
    with torch.inference_mode():
        logprobs = module.log_prob(contexts)
        bar = logprobs.topk(k, dim=1).values[:, -1:]
        masses = [logprobs[:, ids].logsumexp(dim=1, keepdim=True) for ids in module.sections()[1:]]
        return [float((mass > bar).float().mean()) for mass in masses]


def count_multiply_adds(
    module: AdaptiveSoftmax, opening_shares: Sequence[float], previews: dict[int, TailPreview]
) -> float:
    """Expected multiply-adds of a query, with what the previews save."""
    total = module.count_multiply_adds(opening_shares)
    for number, preview in previews.items():
        (classes, width), full_view = module.tail_layers()[number][1].shape, preview.full_view
        preview_macs = preview.projection.shape[1] * (width + classes) + full_view * width
        total -= opening_shares[number] * (classes * width - preview_macs)
    return total
