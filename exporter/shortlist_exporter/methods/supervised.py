"""What methods share that train a head on contexts and their targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from shortlist.errors import BadInput
from shortlist_models.adaptive.softmax import order_by_frequency
from shortlist_models.adaptive.training import Loss, TrainOptions, train_head
from torch import Tensor, nn

from shortlist_exporter.core.types import Progress
from shortlist_exporter.inputs.sources import Contexts, Dense


@contextmanager
def translate_errors() -> Iterator[None]:
    """Turn the ValueError of a model into BadInput."""
    try:
        yield
    except ValueError as error:
        raise BadInput(str(error)) from None


@dataclass(frozen=True)
class RankedExamples:
    """Examples to train on, and the classes by falling frequency in their targets.

    contexts: [n, d] float32. targets: [n] int64. order: [V] ids, the most frequent class first. counts: [V] int64, how
    often each class of `order` is a target.
    """

    contexts: Tensor
    targets: Tensor
    order: Tensor
    counts: Tensor


def rank_examples(examples: Contexts, dense: Dense) -> RankedExamples:
    """The examples as tensors, with the layer's classes ranked; raises BadInput without targets, or at padded rows."""
    if examples.targets is None:
        raise BadInput("training needs targets: give a tensor `targets` [n] beside the contexts, or a trained --head")
    if dense.padded.size:
        raise BadInput(
            f"the weight has {dense.padded.size} padded rows, which a trained head would answer: cut them off"
        )
    targets = torch.from_numpy(examples.targets)
    order = order_by_frequency(targets, dense.classes)
    counts = torch.bincount(targets, minlength=dense.classes)[order]
    return RankedExamples(torch.from_numpy(examples.contexts), targets, order, counts)


def check_layer_shape(shape: tuple[int, int], dense: Dense) -> None:
    """Raise BadInput where a trained head's (V, d) are not the layer's."""
    if shape != (dense.classes, dense.dim):
        raise BadInput(
            f"the trained head is of V = {shape[0]}, d = {shape[1]} but the weight of V = {dense.classes}, "
            f"d = {dense.dim}: give those of one model"
        )


def parse_numbers(name: str, text: str) -> list[int]:
    """Parse the value `1,2,3` of option `name`; raises BadInput."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"option {name}={text} is no list of numbers: write 2000,6000") from None


class TrainingOptions(Protocol):
    """The options of a method that training takes. checkpoint: a file to go on from, or empty."""

    epochs: int
    batch: int
    learning_rate: float
    checkpoint: str


def make_train_options(options: TrainingOptions, seed: int) -> TrainOptions:
    """The options of a head's training."""
    return TrainOptions(options.epochs, options.batch, options.learning_rate, seed)


def train_module(
    module: nn.Module,
    loss: Loss,
    examples: RankedExamples,
    options: TrainingOptions,
    seed: int,
    progress: Progress,
    origin: str = "",
) -> dict[str, Any]:
    """Train `module` in place; returns each epoch's loss, in nats, and how many classes are `never` a target.

    Those rank last, and are learnt as unlikely. origin: as of `train_head`.
    """
    train = make_train_options(options, seed)
    checkpoint = Path(options.checkpoint) if options.checkpoint else None
    with translate_errors():
        history = train_head(module, loss, examples.contexts, examples.targets, train, progress, checkpoint, origin)
    return {"history": history, "never": int((examples.counts == 0).sum())}


def note_absent_classes(fit: Mapping[str, Any]) -> tuple[str, ...]:
    """A note for the user of the classes that are never a target, by what `train_module` returned; none without any."""
    return (f"{fit['never']} classes never occur in the targets: they rank last",) if fit.get("never") else ()
