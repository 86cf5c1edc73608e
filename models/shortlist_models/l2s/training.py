"""Learning to Screen: a linear screen picks a cluster, the cluster's candidate set is scored exactly.

Chen, Si, Kumar, Li and Hsieh, "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural Networks",
ICLR 2019. Equation numbers are the paper's: (2) z(h) = argmax_t v_t . h; (4, 5) Gumbel softmax with a straight-through
argmax; (6) the loss of a screened answer; (7) its minimum under a budget; (8) the relaxed loss for the screen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .candidate_sets import Background, Labels, ScreenOptions, candidate_sets, indicator

Progress = Callable[[str, int, int], None]


def quiet(stage: str, done: int, total: int) -> None:
    """Progress that goes nowhere."""
    del stage, done, total


@dataclass
class Screened:
    """A trained screen: v [r, d], and each cluster's ascending candidate ids."""

    vectors: Tensor
    sets: list[Tensor]
    history: list[dict[str, float]] = field(default_factory=list)

    def assign(self, contexts: Tensor) -> Tensor:
        """[n, d] -> cluster [n], Equation 2."""
        clusters: Tensor = (contexts @ self.vectors.T).argmax(dim=1)
        return clusters


def spherical_kmeans(
    contexts: Tensor, clusters: int, seed: int, rounds: int = 20, progress: Progress = quiet
) -> Tensor:
    """Unit centroids [r, d] of the directions of `contexts` [n, d]; an empty cluster is seeded again from a far row."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.nn.functional.normalize(contexts, dim=1)
    centroids = directions[torch.randperm(len(directions), generator=generator)[:clusters]].clone()
    for done in range(rounds):
        best = torch.cat([(part @ centroids.T).max(dim=1).values for part in torch.split(directions, 65_536)])
        nearest = torch.cat([(part @ centroids.T).argmax(dim=1) for part in torch.split(directions, 65_536)])
        sums = torch.zeros_like(centroids).index_add_(0, nearest, directions)
        empty = torch.bincount(nearest, minlength=clusters) == 0
        sums[empty] = directions[best.argsort()[: int(empty.sum())]]
        centroids = torch.nn.functional.normalize(sums, dim=1)
        progress("spherical k-means", done + 1, rounds)
    return centroids


def screened_loss(choice: Tensor, ids: Tensor, c: Tensor, overlap: Tensor, lam: float) -> Tensor:
    """[b]: Equation 8 without its budget term, for (relaxed) choices [b, r] and wanted classes [b, depth].

    Equals sum_{s in y} (1 - sum_t p_t c_ts)^2 + lam sum_{s not in y} (sum_t p_t c_ts)^2, but with the second sum over
    all classes taken as the quadratic form p^T (c c^T) p, so that no array has V columns. overlap: c c^T [r, r].
    """
    covered = torch.einsum("br,brm->bm", choice, c[:, ids].transpose(0, 1))
    everything = ((choice @ overlap) * choice).sum(dim=1)
    loss: Tensor = ((1 - covered) ** 2).sum(dim=1) + lam * (everything - (covered**2).sum(dim=1))
    return loss


def straight_through(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Equations 4 and 5: a one-hot Gumbel sample [b, r] with the gradient of its softmax."""
    noise = -torch.log(-torch.log(torch.rand(logits.shape, generator=generator).clamp(1e-9, 1 - 1e-9)))
    soft = ((logits.log_softmax(dim=1) + noise) / temperature).softmax(dim=1)
    hard = torch.nn.functional.one_hot(soft.argmax(dim=1), logits.shape[1]).to(soft.dtype)
    return soft + (hard - soft).detach()


def scaled(vectors: Tensor, contexts: Tensor, confidence: float) -> Tensor:
    """`vectors` times one factor, so that the likeliest cluster has mean probability `confidence`; the order stays."""
    sample = contexts[:4096] @ vectors.T
    low, high = 1e-3, 1e4
    for _ in range(50):
        middle = (low * high) ** 0.5
        sharp = float((sample * middle).softmax(dim=1).max(dim=1).values.mean()) < confidence
        low, high = (middle, high) if sharp else (low, middle)
    sharpened: Tensor = vectors * (low * high) ** 0.5
    return sharpened


def train_screen(
    contexts: Tensor,
    labels: Labels,
    options: ScreenOptions,
    always: Tensor | None = None,
    progress: Progress = quiet,
    checkpoint: Path | None = None,
    background: Background | None = None,
) -> Screened:
    """Algorithm 1: spherical k-means, then rounds of gradient steps on (8) and the knapsack.

    checkpoint: written after every round; training with the same options goes on from it and ends with the same screen.
    """
    generator = torch.Generator().manual_seed(options.seed)
    kept = resumed(checkpoint, options)
    start: Tensor = kept["vectors"] if kept else first_vectors(contexts, options, progress)
    vectors = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([vectors], lr=options.learning_rate)
    screened = Screened(start.clone(), [])
    screened.sets = candidate_sets(screened.assign(contexts), labels, options, always, background)
    screened.history.append(quality(screened, contexts, labels))
    if kept:
        optimizer.load_state_dict(kept["optimizer"])
        generator.set_state(kept["generator"])
        screened.history = list(kept["history"])
    for done in range(kept["done"] if kept else 0, options.rounds):
        run_epochs(vectors, optimizer, screened, contexts, labels, options, done, generator, progress)
        screened.vectors = vectors.detach().clone()
        screened.sets = candidate_sets(screened.assign(contexts), labels, options, always, background)
        screened.history.append(quality(screened, contexts, labels))
        save(checkpoint, options, done + 1, screened, optimizer, generator)
    return screened


def first_vectors(contexts: Tensor, options: ScreenOptions, progress: Progress) -> Tensor:
    """The k-means start, [r, d]."""
    centroids = spherical_kmeans(contexts, options.clusters, options.seed, progress=progress)
    return scaled(centroids, contexts, options.confidence)


def save(
    path: Path | None,
    options: ScreenOptions,
    done: int,
    screened: Screened,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator,
) -> None:
    """Leave the training's state at `path`, whole or not at all."""
    if path is None:
        return
    state = {
        "options": repr(options),
        "done": done,
        "vectors": screened.vectors,
        "history": screened.history,
        "optimizer": optimizer.state_dict(),
        "generator": generator.get_state(),
    }
    partial = path.with_name(path.name + ".partial")
    torch.save(state, partial)
    partial.replace(path)


def resumed(path: Path | None, options: ScreenOptions) -> dict[str, Any] | None:
    """The state at `path`, or None where there is none or it is of other options."""
    if path is None or not path.is_file():
        return None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state if state["options"] == repr(options) else None


def run_epochs(
    vectors: Tensor,
    optimizer: torch.optim.Optimizer,
    screened: Screened,
    contexts: Tensor,
    labels: Labels,
    options: ScreenOptions,
    done: int,
    generator: torch.Generator,
    progress: Progress,
) -> None:
    """One round's passes over the contexts, the sets fixed."""
    c = indicator(screened.sets, labels.classes)
    overlap, sizes = c @ c.T, c.sum(dim=1)
    share = torch.bincount(screened.assign(contexts), minlength=options.clusters).float() / len(contexts)
    hot, cold = options.temperatures
    temperature = hot * (cold / hot) ** (done / max(1, options.rounds - 1))
    for epoch in range(options.epochs):
        order = torch.randperm(len(contexts), generator=generator)
        for rows in torch.split(order, options.batch):
            choice = straight_through(contexts[rows] @ vectors.T, temperature, generator)
            mean = choice.mean(dim=0)
            share = 0.99 * share + 0.01 * mean.detach()
            candidates = (share + mean - mean.detach()) @ sizes  # the moving average's value, the batch's gradient
            loss = screened_loss(choice, labels.ids[rows], c, overlap, options.lam).sum()
            loss = loss + options.gamma * torch.relu(candidates - options.budget)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        progress("screen", done * options.epochs + epoch + 1, options.rounds * options.epochs)


def quality(screened: Screened, contexts: Tensor, labels: Labels) -> dict[str, float]:
    """Share of wanted classes inside the sets (the best alone, and all of them), and mean candidates."""
    c = indicator(screened.sets, labels.classes).bool()
    assigned = screened.assign(contexts)
    inside = c[assigned[:, None], labels.ids]
    sizes = c.sum(dim=1).float()
    return {
        "p1": float(inside[:, 0].float().mean()),
        "p": float(inside.float().mean()),
        "candidates": float(sizes[assigned].mean()),
    }
