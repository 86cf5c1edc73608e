"""Training steps of the output layer: adaptive against full, by vocabulary, by head size and by number of tails."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from shortlist_exporter.commands.progress import Report
from shortlist_models.adaptive.cost_model import CostModel, fit_cost_model, time_training
from shortlist_models.adaptive.cutoffs import (
    Cuts,
    Layer,
    choose_cuts,
    list_cut_points,
    predict_seconds,
    sum_target_shares,
)
from shortlist_models.adaptive.hierarchical import FrequencyBins
from shortlist_models.adaptive.softmax import AdaptiveSoftmax
from torch import Tensor, nn

DIM, BATCH = 200, 512
VOCABULARIES = (10_000, 33_000, 100_000)
ROUNDS = 5  # of all contenders in turn
HEADS = 7
FULL = "full softmax"
TAILS = (1, 2, 3, 4, 5)
DIV_VALUE = {1: 4.0, 2: 4.0, 3: 4.0, 4: 3.0, 5: 2.5}  # widths from d / 4 that leave the last tail one of at least 2


@dataclass(frozen=True)
class Step:
    """A timed training step: forward, loss and backward, without the optimiser. seconds: the least of some rounds.

    full: seconds of the full softmax in the same rounds, where it was among them.
    """

    name: str
    seconds: float
    predicted: float | None = None
    full: float = 0.0


Contender = Callable[[Tensor, Tensor], Tensor]


def zipf(classes: int) -> Tensor:
    """[V] counts of a language: 1 / rank."""
    return 1e8 / torch.arange(1, classes + 1, dtype=torch.float64)


def measured(contenders: Mapping[str, Contender], classes: int, rounds: int = ROUNDS) -> dict[str, float]:
    """Least seconds of a step, in turn over the same batches of Zipf targets; a first round is not counted."""
    generator = torch.Generator().manual_seed(0)
    spent: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        contexts = torch.randn(BATCH, DIM, generator=generator).requires_grad_()
        targets = torch.multinomial(zipf(classes), BATCH, replacement=True, generator=generator)
        for name, contender in contenders.items():
            start = time.perf_counter()
            contender(contexts, targets).backward()  # type: ignore[no-untyped-call]
            spent[name].append(time.perf_counter() - start)
    return {name: min(seconds[1:]) for name, seconds in spent.items()}


def full(classes: int) -> Contender:
    """The full softmax."""
    layer = nn.Linear(DIM, classes)
    return lambda contexts, targets: nn.functional.cross_entropy(layer(contexts), targets)


def cut(classes: int, cutoffs: Sequence[int], div_value: float = 4.0) -> Contender:
    """An adaptive softmax."""
    module = AdaptiveSoftmax(DIM, classes, cutoffs, div_value)
    return lambda contexts, targets: module(contexts, targets).loss


def binned(classes: int) -> Contender:
    """Hierarchical, bins of equal frequency."""
    return FrequencyBins(DIM, zipf(classes), torch.arange(classes))


@dataclass(frozen=True)
class Vocabulary:
    """One V: the cutoffs chosen for training, and the steps."""

    classes: int
    cuts: Cuts
    steps: list[Step]


def by_vocabulary(model: CostModel, classes: int) -> Vocabulary:
    """Full, hierarchical and adaptive with the programme's cutoffs."""
    layer, counts = Layer(classes, DIM, BATCH), zipf(classes)
    cuts = min(choose_cuts(model, layer, counts, list_cut_points(counts)).values(), key=lambda one: one.seconds)
    contenders = {
        FULL: full(classes),
        "hierarchical, bins of equal frequency": binned(classes),
        f"adaptive, cutoffs {', '.join(f'{one:,}' for one in cuts.cutoffs)}": cut(classes, cuts.cutoffs),
    }
    said = [cuts.full, None, cuts.seconds]
    found = measured(contenders, classes)
    steps = [Step(name, found[name], one) for name, one in zip(contenders, said, strict=True)]
    return Vocabulary(classes, cuts, steps)


def by_head(model: CostModel, classes: int) -> dict[int, Step]:
    """Two clusters: k_h, over two and a half decades -> a step (the paper's figure)."""
    counts = zipf(classes)
    heads = sorted({round(float(one)) for one in np.geomspace(classes / 300, classes * 0.9, HEADS)})
    found = measured({FULL: full(classes)} | {str(head): cut(classes, [head]) for head in heads}, classes)
    layer = Layer(classes, DIM, BATCH)
    return {
        head: Step(str(head), found[str(head)], seconds_of(model, layer, counts, [head]), found[FULL]) for head in heads
    }


def by_tails(model: CostModel, classes: int) -> dict[int, Step]:
    """J -> a step with the programme's cutoffs; from four tails on they narrow more slowly, to keep a width."""
    counts, points = zipf(classes), list_cut_points(zipf(classes))
    best = {}
    for number in TAILS:
        layer = Layer(classes, DIM, BATCH, DIV_VALUE[number])
        best[number] = choose_cuts(model, layer, counts, points, tails=[number])[number]
    cuts = {str(j): cut(classes, one.cutoffs, DIV_VALUE[j]) for j, one in best.items()}
    found = measured({FULL: full(classes)} | cuts, classes)
    return {j: Step(str(j), found[str(j)], one.seconds, found[FULL]) for j, one in best.items()}


def seconds_of(model: CostModel, layer: Layer, counts: Tensor, cutoffs: Sequence[int]) -> float:
    """What the model predicts of these cutoffs."""
    points = [*cutoffs, layer.classes]
    shares = sum_target_shares(counts, points)
    place = {point: index for index, point in enumerate(points)}
    return predict_seconds(model, layer, lambda start, end: float(shares[place[start], place[end]]), cutoffs)


@dataclass(frozen=True)
class Training:
    """All of it."""

    model: CostModel
    vocabularies: list[Vocabulary]
    heads: dict[int, Step]
    tails: dict[int, Step]
    classes: int


def training(report: Report) -> Training:
    """Fit the cost model, then time. Some minutes."""
    total = itertools.count(1)
    said: Callable[[], None] = lambda: report("training steps", next(total), 3 + len(VOCABULARIES))  # noqa: E731
    model = fit_cost_model(time_training(DIM, BATCH))
    said()
    vocabularies = []
    for classes in VOCABULARIES:
        vocabularies.append(by_vocabulary(model, classes))
        said()
    middle = VOCABULARIES[1]
    heads = by_head(model, middle)
    said()
    tails = by_tails(model, middle)
    said()
    return Training(model, vocabularies, heads, tails, middle)
