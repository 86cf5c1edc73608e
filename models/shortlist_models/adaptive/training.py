"""Training of a head on context vectors and their targets; the network that made the vectors stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from shortlist_models.checkpoint import load_checkpoint, name_training, save_checkpoint
from shortlist_models.progress import Progress, quiet

Loss = Callable[[Tensor, Tensor], Tensor]  # contexts [B, d], targets [B] -> mean negative log-likelihood, nats


@dataclass(frozen=True)
class TrainOptions:
    """Adam with a learning rate that falls linearly to a tenth over all steps. batch: context vectors in a step."""

    epochs: int = 4
    batch: int = 512
    learning_rate: float = 0.003
    seed: int = 0


def train_head(
    module: nn.Module,
    loss: Loss,
    contexts: Tensor,
    targets: Tensor,
    options: TrainOptions,
    progress: Progress = quiet,
    checkpoint: Path | None = None,
) -> list[float]:
    """Train `module` in place on `contexts` [n, d] and `targets` [n] int64; returns each epoch's mean loss, in nats.

    loss: of a batch. checkpoint: a file written after every epoch; a training of the same examples, shapes and options
    goes on from it and ends with the same weights. Raises ValueError for a file that is none.
    """
    generator = torch.Generator().manual_seed(options.seed)
    optimizer = torch.optim.Adam(module.parameters(), lr=options.learning_rate)
    steps = options.epochs * -(-len(contexts) // options.batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    parts: dict[str, Any] = {"module": module, "optimizer": optimizer, "schedule": schedule}
    fingerprint = name_training(f"{options} {describe_shapes(module)}", contexts, targets)
    history = resume_training(load_checkpoint(checkpoint, fingerprint), parts, generator)
    module.train()
    for epoch in range(len(history), options.epochs):
        total = 0.0
        order = torch.randperm(len(contexts), generator=generator)
        for done, rows in enumerate(torch.split(order, options.batch)):
            batch_loss = loss(contexts[rows], targets[rows])
            optimizer.zero_grad()
            batch_loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(batch_loss.detach()) * len(rows)
            progress("training", epoch * len(order) + done * options.batch + len(rows), options.epochs * len(order))
        history.append(total / len(order))
        states = {name: part.state_dict() for name, part in parts.items()}
        save_checkpoint(checkpoint, fingerprint, {**states, "generator": generator.get_state(), "history": history})
    module.eval()
    return history


def resume_training(state: dict[str, Any] | None, parts: dict[str, Any], generator: torch.Generator) -> list[float]:
    """Load module, optimizer, schedule and generator from a checkpoint's state; returns the losses of its epochs."""
    if state is None:
        return []
    for name, part in parts.items():
        part.load_state_dict(state[name])
    generator.set_state(state["generator"])
    return list(state["history"])


def describe_shapes(module: nn.Module) -> str:
    """Names and shapes of all tensors in one string, which differs between modules of different sizes."""
    return repr([(name, list(tensor.shape)) for name, tensor in module.state_dict().items()])
