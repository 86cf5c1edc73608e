"""Training of a head on contexts and their gold classes, the network below it left as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

Progress = Callable[[str, int, int], None]
Loss = Callable[[Tensor, Tensor], Tensor]  # contexts [B, d], targets [B] -> mean negative log-likelihood, nats


def quiet(stage: str, done: int, total: int) -> None:
    """Progress that goes nowhere."""
    del stage, done, total


@dataclass(frozen=True)
class TrainOptions:
    """Adam, its rate falling linearly to a tenth over all steps. batch: rows a step."""

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
    """Train `module` in place on `contexts` [n, d] and `targets` [n]; returns each epoch's mean loss.

    checkpoint: written after every epoch; training of the same shapes and options goes on from it and ends with the
    same weights.
    """
    generator = torch.Generator().manual_seed(options.seed)
    optimizer = torch.optim.Adam(module.parameters(), lr=options.learning_rate)
    steps = options.epochs * -(-len(contexts) // options.batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, steps)
    state = {"module": module, "optimizer": optimizer, "schedule": schedule}
    history = resume(checkpoint, options, state, generator)
    module.train()
    for epoch in range(len(history), options.epochs):
        total = 0.0
        order = torch.randperm(len(contexts), generator=generator)
        for done, rows in enumerate(torch.split(order, options.batch)):
            found = loss(contexts[rows], targets[rows])
            optimizer.zero_grad()
            found.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(found.detach()) * len(rows)
            progress("training", epoch * len(order) + done * options.batch + len(rows), options.epochs * len(order))
        history.append(total / len(order))
        save(checkpoint, options, state, generator, history)
    module.eval()
    return history


def save(
    path: Path | None, options: TrainOptions, state: dict[str, Any], generator: torch.Generator, history: list[float]
) -> None:
    """Leave the training's state at `path`, whole or not at all."""
    if path is None:
        return
    content = {name: part.state_dict() for name, part in state.items()}
    shapes = shapes_of(state["module"])
    partial = path.with_name(path.name + ".partial")
    kept = {"options": repr(options), "shapes": shapes, "generator": generator.get_state(), "history": history}
    torch.save(content | kept, partial)
    partial.replace(path)


def resume(path: Path | None, options: TrainOptions, state: dict[str, Any], generator: torch.Generator) -> list[float]:
    """Take up what is at `path` and return its losses; nothing where it is of other options or shapes."""
    if path is None or not path.is_file():
        return []
    kept: dict[str, Any] = torch.load(path, weights_only=True)
    if (kept["options"], kept["shapes"]) != (repr(options), shapes_of(state["module"])):
        return []
    for name, part in state.items():
        part.load_state_dict(kept[name])
    generator.set_state(kept["generator"])
    return list(kept["history"])


def shapes_of(module: nn.Module) -> str:
    """What tells modules of different sizes apart."""
    return repr([(name, list(tensor.shape)) for name, tensor in module.state_dict().items()])


def perplexity(log_prob: Callable[[Tensor], Tensor], contexts: Tensor, targets: Tensor, chunk: int = 512) -> float:
    """Exp of the mean negative log-likelihood of `targets` [n]; log_prob: [b, d] -> [b, V]."""
    total = 0.0
    with torch.inference_mode():
        for rows, gold in zip(torch.split(contexts, chunk), torch.split(targets, chunk), strict=True):
            total -= float(log_prob(rows).gather(1, gold[:, None]).double().sum())
    return float(torch.tensor(total / len(targets)).exp())
