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

Progress = Callable[[str, int, int], None]


def quiet(stage: str, done: int, total: int) -> None:
    """Progress that goes nowhere."""
    del stage, done, total


@dataclass(frozen=True)
class Labels:
    """The exact best `depth` classes of every context: ids [n, depth] int64, and how many classes there are."""

    ids: Tensor
    classes: int


@dataclass(frozen=True)
class Background:
    """Softened probabilities of the leading classes of some fit contexts: what sets are filled up with.

    rows: [m] int64 into the fit contexts. ids: [m, depth] int32. values: [m, depth] float32. Frequencies of best
    classes know nothing of a class that was never among them; the mean of its probability over a cluster does (not in
    the paper).
    """

    rows: Tensor
    ids: Tensor
    values: Tensor

    def means(self, assigned: Tensor, clusters: int, classes: int) -> Tensor:
        """[r, V]: mean probability over each cluster's sampled contexts; 0 where it has none."""
        owners = assigned[self.rows]
        total = torch.zeros(clusters * classes)
        total.index_add_(0, (owners[:, None] * classes + self.ids).reshape(-1), self.values.reshape(-1))
        counts = torch.bincount(owners, minlength=clusters).clamp(min=1)
        means: Tensor = total.reshape(clusters, classes) / counts[:, None]
        return means


@dataclass(frozen=True)
class ScreenOptions:
    """Hyper-parameters; `lam` and `gamma` are the paper's, the learning rate and temperatures are not given there.

    budget: mean candidates per query. smoothing: pseudo-contexts that a cluster borrows from all of them.
    """

    clusters: int = 100
    budget: float = 280.0
    lam: float = 0.0003
    gamma: float = 10.0
    smoothing: float = 5.0
    rounds: int = 5
    epochs: int = 2
    batch: int = 1024
    learning_rate: float = 0.01
    temperatures: tuple[float, float] = (1.0, 0.1)
    confidence: float = 0.8
    seed: int = 0


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


def label_counts(assigned: Tensor, labels: Labels, clusters: int) -> Tensor:
    """[r, V] float32: n_ts, the contexts of cluster t whose best classes hold s."""
    pairs = assigned[:, None] * labels.classes + labels.ids
    counts = torch.bincount(pairs.reshape(-1), minlength=clusters * labels.classes)
    return counts.reshape(clusters, labels.classes).float()


def candidate_sets(
    assigned: Tensor,
    labels: Labels,
    options: ScreenOptions,
    always: Tensor | None = None,
    background: Background | None = None,
) -> list[Tensor]:
    """Each cluster's ascending ids: the knapsack of Algorithm 1, by its greedy solution in closed form.

    With n_ts contexts of cluster t (N_t in all) that want s, taking (t, s) is worth n_ts - lam (N_t - n_ts) and weighs
    N_t / N of the budget. Value over weight rises with n_ts / N_t, so the greedy knapsack takes pairs by falling
    conditional frequency until the budget is full: one global threshold. Frequencies are smoothed towards those
    of all contexts, or towards the cluster's part of `background`. `always` [m] is in every set, first of the budget.
    """
    counts = label_counts(assigned, labels, options.clusters)
    sizes = torch.bincount(assigned, minlength=options.clusters).float()
    prior = counts.sum(dim=0).expand_as(counts) / max(1, len(assigned))
    if background is not None:
        prior = background.means(assigned, options.clusters, labels.classes)
    frequency = (counts + options.smoothing * prior) / (sizes[:, None] + max(options.smoothing, 1e-9))
    if always is not None:
        frequency[:, always] = torch.inf
    taken = greedy(frequency, sizes / max(1.0, float(sizes.sum())), options)
    if always is not None:
        taken[:, always] = True
    least = labels.ids.shape[1]
    return [row.nonzero()[:, 0] if row.sum() >= least else frequency[t].topk(least).indices.sort().values
            for t, row in enumerate(taken)]  # fmt: skip


def greedy(frequency: Tensor, share: Tensor, options: ScreenOptions) -> Tensor:
    """[r, V] bool: pairs by falling `frequency` until the sum of `share` [r] of their clusters reaches the budget."""
    useful = frequency > options.lam / (1 + options.lam)
    values = frequency[useful]
    weights = share[:, None].expand_as(frequency)[useful]
    order = values.argsort(descending=True, stable=True)
    fits = weights[order].double().cumsum(0) <= options.budget
    chosen = torch.zeros(len(values), dtype=torch.bool)
    chosen[order[fits]] = True
    taken = torch.zeros_like(frequency, dtype=torch.bool)
    taken[useful] = chosen
    return taken


def indicator(sets: list[Tensor], classes: int) -> Tensor:
    """C [r, V] float32 of 0 and 1."""
    c = torch.zeros(len(sets), classes)
    for row, ids in zip(c, sets, strict=True):
        row[ids] = 1.0
    return c


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
