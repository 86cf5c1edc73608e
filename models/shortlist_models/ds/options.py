"""What a training of Doubly Sparse Softmax takes and what it returns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from shortlist_models.full import FullSoftmax

from .evidence import FORWARD_CHUNK_ROWS
from .softmax import DSSoftmax

DENSE_ROUNDS = 20


@dataclass(frozen=True)
class TrainOptions:
    """Hyper-parameters.

    experts: K, a power of two where `mitosis` is on. rounds: of a stage; a round is `round_steps` batches of
    `expert_batch` contexts an expert, at most `batch`, which the last stage takes: early softmaxes are large, and what
    shrinks their rows is the number of steps. final_rounds: of the last stage instead. tuning_rounds: the last ones,
    without lasso, their learning rate falling from `tuning_rate` to 0. threshold: task loss, in nats, under which rows
    are pruned; None: 5 % over the dense softmax's. lasso: both lassos' first coefficient; it grows by `growth` a round
    until validation accuracy falls `tolerance` under its best, or `speedup` is reached. ceiling: a stage goes on until
    its clones' weights stay under so many dense layers. prune_steps: between prunings, of which a round has one at
    least. noise: of `mitosis.clone`.
    evidence: clones are made without the classes that the fewest of their contexts have among the dense softmax's
    best five, as many as the ceiling and, in the last stage, `speedup` ask for; the lasso may then be weak, and no
    stage is prolonged. Not in the paper; see `evidence`.
    """

    experts: int = 64
    mitosis: bool = True
    rounds: int = 4
    final_rounds: int = 8
    tuning_rounds: int = 4
    round_steps: int = 100
    expert_batch: int = 64
    batch: int = 512
    learning_rate: float = 1e-3
    tuning_rate: float = 1e-3
    threshold: float | None = None
    lasso: float = 1e-4
    growth: float = 2.0
    tolerance: float = 0.002
    speedup: float | None = None
    ceiling: float = 3.25
    prune_steps: int = 25
    evidence: bool = False
    noise: float = 2.0
    seed: int = 0
    device: str = "cpu"


class Examples(NamedTuple):
    """contexts: [n, d]. targets: [n] int64, or a teacher whose distribution is distilled."""

    contexts: Tensor
    targets: Tensor | FullSoftmax

    def take_batch(self, rows: Tensor, device: str) -> tuple[Tensor, Tensor]:
        """Contexts [b, d] and targets of `rows`: ids [b], or a teacher's probabilities [b, V]."""
        contexts = self.contexts[rows].to(device)
        if isinstance(self.targets, Tensor):
            return contexts, self.targets[rows].to(device)
        with torch.no_grad():
            return contexts, self.targets.log_prob(contexts.cpu()).exp().to(device)

    def with_hard_targets(self) -> Examples:
        """The same contexts with ids as targets: where a teacher is distilled, its best class."""
        if isinstance(self.targets, Tensor):
            return self
        with torch.no_grad():
            best = [self.targets.logits(part).argmax(dim=1) for part in torch.split(self.contexts, FORWARD_CHUNK_ROWS)]
        return Examples(self.contexts, torch.cat(best))


@dataclass
class TrainingResult:
    """The module, a record of every round, sentences for the user, and the most bytes that were allocated."""

    module: DSSoftmax
    history: list[dict[str, Any]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    peak_bytes: int = 0


def make_dense_options(options: TrainOptions, rows: int) -> TrainOptions:
    """Options that train a dense softmax in the same way on `rows` rows, with the same share at a falling rate."""
    falling = options.tuning_rounds * options.round_steps * options.batch / max(1, rows)
    tuning = round(DENSE_ROUNDS * min(1.0, falling))
    return replace(
        options,
        experts=1,
        rounds=0,
        final_rounds=DENSE_ROUNDS - tuning,
        tuning_rounds=tuning,
        round_steps=max(1, round(rows / options.batch / DENSE_ROUNDS)),
    )


def check_training(options: TrainOptions, examples: Examples) -> None:
    """Raise ValueError for options or examples that cannot be trained with."""
    if options.mitosis and (options.experts < 1 or options.experts & (options.experts - 1)):
        raise ValueError(f"mitosis doubles the experts, and {options.experts} is no power of two: choose 2, 4, 8, ...")
    if not len(examples.contexts):
        raise ValueError("there are no contexts to train on: give some thousand")
    if len(examples.contexts) == 1 and options.experts > 1:
        raise ValueError("there is one context to train on, which no experts can share: give some thousand")
