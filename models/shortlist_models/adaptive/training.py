"""Training of a head on context vectors and their targets; the network that made the vectors stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LinearLR

from shortlist_models.checkpoint import check_loss, load_checkpoint, name_training, save_checkpoint
from shortlist_models.progress import Progress, quiet

ORIGIN = "origin"  # in a checkpoint: what the sizes of the module follow from
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
    origin: str = "",
) -> list[float]:
    """Train `module` in place on `contexts` [n, d] and `targets` [n] int64; returns each epoch's mean loss, in nats.

    loss: of a batch; what it draws from torch's random numbers follows from the seed. checkpoint: a file written after
    every epoch; a training of the same examples, shapes and options goes on from it and ends with the same weights.
    origin: what the module's sizes follow from, kept there. Raises ValueError for a file that is none, and where the
    loss is no finite number.
    """
    generator = torch.Generator().manual_seed(options.seed)
    optimizer = torch.optim.Adam(module.parameters(), lr=options.learning_rate)
    steps = options.epochs * -(-len(contexts) // options.batch)
    schedule = LinearLR(optimizer, 1.0, 0.1, steps)
    parts: dict[str, Any] = {"module": module, "optimizer": optimizer, "schedule": schedule}
    fingerprint = name_head_training(module, contexts, targets, options)
    history = resume_training(load_checkpoint(checkpoint, fingerprint), parts, generator)
    module.train()
    for epoch in range(len(history), options.epochs):
        total, seen = 0.0, epoch * len(contexts)
        order = torch.randperm(len(contexts), generator=generator)
        with draw_alike(generator):
            for rows in torch.split(order, options.batch):
                total += len(rows) * take_step(loss(contexts[rows], targets[rows]), optimizer, schedule)
                seen += len(rows)
                progress("training", seen, options.epochs * len(contexts))
        check_loss(total, options.learning_rate)
        history.append(total / len(contexts))
        states = {name: part.state_dict() for name, part in parts.items()}
        states |= {"generator": generator.get_state(), "history": history, ORIGIN: origin}
        save_checkpoint(checkpoint, fingerprint, states)
    module.eval()
    return history


def take_step(loss: Tensor, optimizer: torch.optim.Optimizer, schedule: LinearLR) -> float:
    """Change the weights by the gradient of a batch's mean `loss`, which is returned as a number."""
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    schedule.step()
    return float(loss.detach())


@contextmanager
def draw_alike(generator: torch.Generator) -> Iterator[None]:
    """Let torch's own random numbers on the CPU go on as those of `generator`; afterwards they are as before."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(generator.get_state())
        yield


def name_head_training(module: nn.Module, contexts: Tensor, targets: Tensor, options: TrainOptions) -> str:
    """The fingerprint of a head's training, as its checkpoint has it."""
    return name_training(f"{options} {describe_shapes(module)}", contexts, targets)


def resume_training(state: dict[str, Any] | None, parts: dict[str, Any], generator: torch.Generator) -> list[float]:
    """Load module, optimizer, schedule and generator from a checkpoint's state; returns the losses of its epochs."""
    if state is None:
        return []
    for name, part in parts.items():
        part.load_state_dict(state[name])
    generator.set_state(state["generator"])
    return list(state["history"])


def describe_shapes(module: nn.Module) -> str:
    """Names and shapes of all tensors, and what else the module prints of itself, in one string."""
    shapes = [(name, list(tensor.shape)) for name, tensor in module.state_dict().items()]
    return f"{shapes}{module.extra_repr()}"
