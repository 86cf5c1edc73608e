"""Training of the recommender: after each item of a history, the next one, by the softmax over all items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from shortlist_exporter.core.types import Progress, quiet
from torch import Tensor
from torch.nn import functional

from .interactions import Histories, pad_histories
from .model import Recommender, Shape

HELD_OUT_ITEMS = 2  # of each user, at the end: the first tells when to stop, the last tests
BATCH_USERS = 32
MAX_GRADIENT_NORM = 1.0


@dataclass(frozen=True)
class Plan:
    """How to train. patience: epochs without a better recall on the items held out before training ends."""

    epochs: int = 60
    patience: int = 10
    rate: float = 1e-3
    weight_decay: float = 0.01
    seed: int = 0


def train_model(histories: Histories, shape: Shape, plan: Plan, progress: Progress = quiet) -> Recommender:
    """The recommender as it was after its best epoch, by recall@10 of the item held out."""
    torch.manual_seed(plan.seed)
    model = Recommender(shape)
    optimiser = torch.optim.AdamW(model.parameters(), lr=plan.rate, weight_decay=plan.weight_decay)
    taught = pad_histories(histories.cut(HELD_OUT_ITEMS), shape.length + 1, model.padding)
    best, best_state, last_better = -1.0, model.state_dict(), 0
    for epoch in range(plan.epochs):
        loss = train_epoch(model, optimiser, taught)
        recall = measure_held_out(model, histories)
        progress(f"training, loss {loss:.2f} nats, recall@10 {recall:.3f}", epoch + 1, plan.epochs)
        if recall > best:
            best, last_better = recall, epoch
            best_state = {name: value.clone() for name, value in model.state_dict().items()}
        if epoch - last_better >= plan.patience:
            break
    model.load_state_dict(best_state)
    return model.eval()


def train_epoch(model: Recommender, optimiser: torch.optim.Optimizer, taught: Tensor) -> float:
    """One pass over the users' items [n, length + 1], in random order; returns the mean loss an item, nats."""
    model.train()
    losses = []
    for users in torch.randperm(len(taught)).split(BATCH_USERS):
        loss = measure_loss(model, taught[users])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRADIENT_NORM)
        optimiser.step()
        losses.append(loss.item())
    return float(np.mean(losses))


def measure_loss(model: Recommender, taught: Tensor) -> Tensor:
    """The cross-entropy of each item [B, length + 1] after those before it."""
    inputs, targets = taught[:, :-1], taught[:, 1:]
    real = inputs != model.padding
    return functional.cross_entropy(model(inputs)[real] @ model.weight.T, targets[real])


def measure_held_out(model: Recommender, histories: Histories) -> float:
    """Recall@10 of the first item held out of each user's, among those that the user has not taken."""
    seen = histories.cut(HELD_OUT_ITEMS)
    users = compute_users(model, seen)
    scores = users @ model.weight.detach().numpy().T
    target = scores[np.arange(len(seen)), histories.targets(HELD_OUT_ITEMS)].copy()
    for row, items in zip(scores, seen, strict=True):
        row[items] = -np.inf
    return float(((scores > target[:, None]).sum(axis=1) < 10).mean())


def compute_users(model: Recommender, taken: list[list[int]]) -> np.ndarray:
    """The vector of each user after those items, [n, d] float32."""
    return np.concatenate([hidden[:, -1].numpy() for hidden in compute_states(model, taken)])


def compute_contexts(model: Recommender, taken: list[list[int]]) -> np.ndarray:
    """The vectors of all users after each of their last `length` items, [m, d] float32: what a head is fitted to."""
    rows = pad_histories(taken, model.shape.length, model.padding).split(BATCH_USERS)
    states = zip(rows, compute_states(model, taken), strict=True)
    return np.concatenate([hidden[items != model.padding].numpy() for items, hidden in states])


@torch.inference_mode()
def compute_states(model: Recommender, taken: list[list[int]]) -> Iterator[Tensor]:
    """Hidden states [up to BATCH_USERS, length, d], users in order."""
    model.eval()
    for rows in pad_histories(taken, model.shape.length, model.padding).split(BATCH_USERS):
        yield model(rows)
