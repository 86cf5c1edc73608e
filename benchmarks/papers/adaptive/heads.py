"""Heads of the adaptive softmax's page: all trained in the same way on the same contexts, kept in the cache."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from shortlist_exporter.graphs.serving_cost import time_serving
from shortlist_models import FullSoftmax
from shortlist_models.adaptive.cost_model import CostModel, fit_cost_model
from shortlist_models.adaptive.cutoffs import (
    Cuts,
    Layer,
    choose_cuts,
    choose_fastest,
    list_cut_points,
    measure_opening_shares,
)
from shortlist_models.adaptive.dsoftmax import DSoftmax
from shortlist_models.adaptive.hierarchical import FrequencyBins
from shortlist_models.adaptive.softmax import AdaptiveSoftmax, order_by_frequency
from shortlist_models.adaptive.training import Loss, TrainOptions, train_head
from shortlist_models.progress import Progress
from torch import Tensor, nn

from benchmarks.papers.common.wall_times import TIMED_K

HEAD_OPTIONS = TrainOptions(epochs=2, batch=512, learning_rate=0.003)
CALIBRATION_CONTEXTS = 2000  # contexts that say how often a tail must be opened


@dataclass(frozen=True)
class TrainedHead:
    """A head: its distribution, and the module behind it."""

    name: str
    module: nn.Module
    log_prob: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Sample:
    """Contexts [n, d] and their next words [n], and how often each word comes, by position in `order`."""

    contexts: Tensor
    targets: Tensor
    order: Tensor
    counts: Tensor

    @staticmethod
    def make(contexts: Tensor, targets: Tensor, classes: int) -> Sample:
        """Count how often each class comes, by its position in `order`."""
        order = order_by_frequency(targets, classes)
        return Sample(contexts, targets, order, torch.bincount(targets, minlength=classes)[order])


@dataclass(frozen=True)
class Choice:
    """Cutoffs for serving: the fitted cost model, and the best for every number of tails."""

    model: CostModel
    cuts: dict[int, Cuts]

    @property
    def fastest_cutoffs(self) -> list[int]:
        """The cutoffs with the least predicted time."""
        return list(choose_fastest(self.cuts).cutoffs)


def choose_cutoffs(dense: FullSoftmax, fit_rows: Sample, cache: Path) -> Choice:
    """Choose cutoffs by the dynamic programme, as `shortlist export` does; stored, since heads are trained for them."""
    path = cache / f"adaptive-cutoffs-{len(fit_rows.contexts)}.json"
    if not path.is_file():
        step = max(1, len(fit_rows.contexts) // CALIBRATION_CONTEXTS)
        logprobs = dense.log_prob(fit_rows.contexts[::step])[:, fit_rows.order]
        points = list_cut_points(fit_rows.counts)
        classes, dim = dense.weight.shape
        model = fit_cost_model(time_serving(dim))
        best = choose_cuts(
            model, Layer(classes, dim), fit_rows.counts, points, measure_opening_shares(logprobs, points, TIMED_K)
        )
        content = {"model": asdict(model), "cuts": {number: asdict(cuts) for number, cuts in best.items()}}
        path.write_text(json.dumps(content, indent=1), "utf-8")
    record = json.loads(path.read_text("utf-8"))
    cuts = {int(number): Cuts(**{**one, "cutoffs": tuple(one["cutoffs"])}) for number, one in record["cuts"].items()}
    return Choice(CostModel(**record["model"]), cuts)


def train_adaptive(
    fit_rows: Sample, cutoffs: list[int], cache: Path, report: Progress, div_value: float = 4.0
) -> TrainedHead:
    """An adaptive softmax with a bias in its head."""
    dim, classes = fit_rows.contexts.shape[1], len(fit_rows.counts)
    torch.manual_seed(HEAD_OPTIONS.seed)
    module = AdaptiveSoftmax(dim, classes, cutoffs, div_value, True, fit_rows.order)
    name = f"adaptive {', '.join(f'{cutoff:,}' for cutoff in cutoffs)}"

    def loss(contexts: Tensor, targets: Tensor) -> Tensor:
        value: Tensor = module(contexts, targets).loss
        return value

    return TrainedHead(
        name,
        train_or_load(f"adaptive-{'-'.join(map(str, cutoffs))}-{div_value:g}", module, loss, fit_rows, cache, report),
        module.log_prob,
    )


def train_dsoftmax(fit_rows: Sample, cutoffs: list[int], cache: Path, report: Progress) -> TrainedHead:
    """A differentiated softmax with the adaptive one's buckets and widths, and a learnt projection before it."""
    dim, classes = fit_rows.contexts.shape[1], len(fit_rows.counts)
    torch.manual_seed(HEAD_OPTIONS.seed)
    widths = [dim // 4**bucket for bucket in range(len(cutoffs) + 1)]
    module = DSoftmax(dim, classes, cutoffs, widths, fit_rows.order)
    name = f"dsoftmax-{'-'.join(map(str, cutoffs))}"
    return TrainedHead(
        f"dsoftmax {', '.join(f'{cutoff:,}' for cutoff in cutoffs)}",
        train_or_load(name, module, module, fit_rows, cache, report),
        module.log_prob,
    )


def train_dense(fit_rows: Sample, cache: Path, report: Progress) -> TrainedHead:
    """A full softmax, trained in the same way."""
    torch.manual_seed(HEAD_OPTIONS.seed)
    module = nn.Linear(fit_rows.contexts.shape[1], len(fit_rows.counts))
    loss = lambda contexts, targets: nn.functional.cross_entropy(module(contexts), targets)  # noqa: E731
    return TrainedHead(
        "dense",
        train_or_load("dense", module, loss, fit_rows, cache, report),
        lambda rows: module(rows).log_softmax(dim=1),
    )


def train_hierarchical(fit_rows: Sample, cache: Path, report: Progress) -> TrainedHead:
    """A hierarchical softmax over bins of equal frequency, trained in the same way."""
    torch.manual_seed(HEAD_OPTIONS.seed)
    module = FrequencyBins(fit_rows.contexts.shape[1], fit_rows.counts, fit_rows.order)
    name = f"hierarchical, {len(module.bins) - 1} bins of equal frequency"
    return TrainedHead(name, train_or_load("hierarchical", module, module, fit_rows, cache, report), module.log_prob)


def train_or_load(
    name: str, module: nn.Module, loss: Loss, fit_rows: Sample, cache: Path, report: Progress
) -> nn.Module:
    """`module` after training, from the cache where it is there."""
    rows, options = len(fit_rows.contexts), HEAD_OPTIONS
    stem = f"head-{name}-{rows}-{options.epochs}-{options.batch}-{options.learning_rate:g}"
    path = cache / f"{stem}.pt"
    if not path.is_file():
        stage: Progress = lambda _, done, total: report(f"training {name}", done, total)  # noqa: E731
        train_head(module, loss, fit_rows.contexts, fit_rows.targets, options, stage, cache / f"{stem}.state.pt")
        torch.save(module.state_dict(), path)
        (cache / f"{stem}.state.pt").unlink()
    module.load_state_dict(torch.load(path, weights_only=True))
    return module.eval()
