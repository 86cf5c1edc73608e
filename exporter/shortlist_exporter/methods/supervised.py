"""What methods share that train a head on contexts and their targets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from shortlist.errors import BadInput
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


def require_targets(examples: Contexts, dense: Dense) -> tuple[Tensor, Tensor]:
    """Contexts [n, d] and targets [n] as tensors; raises BadInput where there are no targets, or padded rows."""
    if examples.targets is None:
        raise BadInput("training needs targets: give a tensor `targets` [n] beside the contexts, or a trained --head")
    if dense.padded.size:
        raise BadInput(
            f"the weight has {dense.padded.size} padded rows, which a trained head would answer: cut them off"
        )
    return torch.from_numpy(examples.contexts), torch.from_numpy(examples.targets)


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


def count_absent_classes(targets: Tensor, classes: int) -> int:
    """How many of `classes` are never a target: they rank last, and are learnt as unlikely."""
    return int((torch.bincount(targets, minlength=classes) == 0).sum())


class TrainingOptions(Protocol):
    """The options of a method that training takes. checkpoint: a file to go on from, or empty."""

    epochs: int
    batch: int
    learning_rate: float
    checkpoint: str


def train_module(
    module: nn.Module,
    loss: Loss,
    examples: tuple[Tensor, Tensor],
    classes: int,
    options: TrainingOptions,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Train `module` in place on examples: contexts [n, d] and targets [n] of `classes` classes.

    Returns each epoch's loss, in nats, and how many classes are never a target.
    """
    contexts, targets = examples
    train = TrainOptions(options.epochs, options.batch, options.learning_rate, seed)
    checkpoint = Path(options.checkpoint) if options.checkpoint else None
    history = train_head(module, loss, contexts, targets, train, progress, checkpoint)
    return {"history": history, "never": count_absent_classes(targets, classes)}
