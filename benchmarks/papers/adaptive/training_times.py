"""Training steps of the output layer: adaptive against full, by vocabulary, by head size and by number of tails."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.timing import Call, time_calls
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
from shortlist_models.progress import Progress
from torch import Tensor, nn

STEP_DIM, STEP_BATCH = 200, 512
VOCABULARIES = (10_000, 33_000, 100_000)
STEP_ROUNDS = 5  # of all contenders in turn
HEAD_SIZES = 7
FULL_SOFTMAX = "full softmax"
TAIL_COUNTS = (1, 2, 3, 4, 5)
DIV_VALUE = {1: 4.0, 2: 4.0, 3: 4.0, 4: 3.0, 5: 2.5}  # widths from d / 4 that leave the last tail one of at least 2


@dataclass(frozen=True)
class Step:
    """A timed training step: forward, loss and backward, without the optimiser. seconds: the least of some rounds.

    full: seconds of the full softmax in the same rounds, where it was among them.
    """

    name: str
    seconds: float
    prediction: float | None = None
    full: float = 0.0


TrainingStep = Callable[[Tensor, Tensor], Tensor]


def make_zipf_counts(classes: int) -> Tensor:
    """[V] counts of a language: 1 / rank."""
    return 1e8 / torch.arange(1, classes + 1, dtype=torch.float64)


def measure_steps(contenders: Mapping[str, TrainingStep], classes: int, rounds: int = STEP_ROUNDS) -> dict[str, float]:
    """Least seconds of a step, in turn over the same batches of Zipf targets."""
    generator = torch.Generator().manual_seed(0)
    contexts = torch.randn(rounds * STEP_BATCH, STEP_DIM, generator=generator).numpy()
    targets = torch.multinomial(make_zipf_counts(classes), len(contexts), replacement=True, generator=generator)
    calls = {name: make_timed_call(step, targets) for name, step in contenders.items()}
    return {name: float(one.seconds.min()) for name, one in time_calls(calls, contexts, STEP_BATCH, block=1).items()}


def make_timed_call(step: TrainingStep, targets: Tensor) -> Call:
    """A call that runs a step forward and backward, with the next batch of `targets` [n] each time; it has no ids."""
    batches = itertools.cycle(torch.split(targets, STEP_BATCH))

    def run_step(rows: FloatArray) -> IdArray:
        step(torch.from_numpy(rows).requires_grad_(), next(batches)).backward()  # type: ignore[no-untyped-call]
        return np.empty((0, 0), np.int64)

    return run_step


def make_full(classes: int) -> TrainingStep:
    layer = nn.Linear(STEP_DIM, classes)
    return lambda contexts, targets: nn.functional.cross_entropy(layer(contexts), targets)


def make_adaptive(classes: int, cutoffs: Sequence[int], div_value: float = 4.0) -> TrainingStep:
    module = AdaptiveSoftmax(STEP_DIM, classes, cutoffs, div_value)
    return lambda contexts, targets: module(contexts, targets).loss


def make_hierarchical(classes: int) -> TrainingStep:
    """The step of a hierarchical softmax over bins of equal frequency."""
    return FrequencyBins(STEP_DIM, make_zipf_counts(classes), torch.arange(classes))


@dataclass(frozen=True)
class Vocabulary:
    """One V: the cutoffs chosen for training, and the steps."""

    classes: int
    cuts: Cuts
    steps: list[Step]


def time_vocabulary(model: CostModel, classes: int) -> Vocabulary:
    """Full, hierarchical and adaptive with the programme's cutoffs."""
    layer, counts = Layer(classes, STEP_DIM, STEP_BATCH), make_zipf_counts(classes)
    cuts = min(choose_cuts(model, layer, counts, list_cut_points(counts)).values(), key=lambda one: one.seconds)
    contenders = {
        FULL_SOFTMAX: make_full(classes),
        "hierarchical, bins of equal frequency": make_hierarchical(classes),
        f"adaptive, cutoffs {', '.join(f'{one:,}' for one in cuts.cutoffs)}": make_adaptive(classes, cuts.cutoffs),
    }
    predictions = [cuts.full, None, cuts.seconds]
    seconds = measure_steps(contenders, classes)
    steps = [Step(name, seconds[name], one) for name, one in zip(contenders, predictions, strict=True)]
    return Vocabulary(classes, cuts, steps)


def time_head_sizes(model: CostModel, classes: int) -> dict[int, Step]:
    """Two clusters: k_h, over two and a half decades -> a step (the paper's figure)."""
    counts = make_zipf_counts(classes)
    heads = sorted({round(float(one)) for one in np.geomspace(classes / 300, classes * 0.9, HEAD_SIZES)})
    seconds = measure_steps(
        {FULL_SOFTMAX: make_full(classes)} | {str(head): make_adaptive(classes, [head]) for head in heads}, classes
    )
    layer = Layer(classes, STEP_DIM, STEP_BATCH)
    return {
        head: Step(str(head), seconds[str(head)], predict_steps(model, layer, counts, [head]), seconds[FULL_SOFTMAX])
        for head in heads
    }


def time_tails(model: CostModel, classes: int) -> dict[int, Step]:
    """J -> a step with the programme's cutoffs; from four tails on they narrow more slowly, to keep a width."""
    counts, points = make_zipf_counts(classes), list_cut_points(make_zipf_counts(classes))
    best = {}
    for number in TAIL_COUNTS:
        layer = Layer(classes, STEP_DIM, STEP_BATCH, DIV_VALUE[number])
        best[number] = choose_cuts(model, layer, counts, points, tails=[number])[number]
    cuts = {str(j): make_adaptive(classes, one.cutoffs, DIV_VALUE[j]) for j, one in best.items()}
    seconds = measure_steps({FULL_SOFTMAX: make_full(classes)} | cuts, classes)
    return {j: Step(str(j), seconds[str(j)], one.seconds, seconds[FULL_SOFTMAX]) for j, one in best.items()}


def predict_steps(model: CostModel, layer: Layer, counts: Tensor, cutoffs: Sequence[int]) -> float:
    """The seconds of a training step with these cutoffs, as the cost model predicts them."""
    points = [*cutoffs, layer.classes]
    shares = sum_target_shares(counts, points)
    place = {point: index for index, point in enumerate(points)}
    return predict_seconds(model, layer, lambda start, end: float(shares[place[start], place[end]]), cutoffs)


@dataclass(frozen=True)
class Training:
    """The times of all training steps, and the cost model that predicts them."""

    model: CostModel
    vocabularies: list[Vocabulary]
    heads: dict[int, Step]
    tails: dict[int, Step]
    classes: int


def measure_training(report: Progress) -> Training:
    """Fit the cost model, then time. Some minutes."""
    total = itertools.count(1)
    report_step: Callable[[], None] = lambda: report("training steps", next(total), 3 + len(VOCABULARIES))  # noqa: E731
    model = fit_cost_model(time_training(STEP_DIM, STEP_BATCH))
    report_step()
    vocabularies = []
    for classes in VOCABULARIES:
        vocabularies.append(time_vocabulary(model, classes))
        report_step()
    middle = VOCABULARIES[1]
    heads = time_head_sizes(model, middle)
    report_step()
    tails = time_tails(model, middle)
    report_step()
    return Training(model, vocabularies, heads, tails, middle)
