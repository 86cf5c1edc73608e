"""Learning to Screen: a linear screen picks a cluster, the cluster's candidate set is scored exactly.

Chen, Si, Kumar, Li and Hsieh, "Learning to Screen for Fast Softmax Inference on Large Vocabulary Neural Networks", ICLR
2019. Equation numbers are the paper's: (2) z(h) = argmax_t v_t . h; (4, 5) Gumbel softmax with a straight-through
argmax; (6) the loss of an answer from the chosen cluster's set; (7) its minimum under a budget; (8) the relaxed loss
for the screen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shortlist_models.checkpoint import load_checkpoint, name_training, save_checkpoint
from shortlist_models.progress import Progress, quiet

from .candidate_sets import Background, BestClasses, ScreenOptions, choose_candidate_sets, make_indicator

KMEANS_CHUNK_ROWS = 65_536
KMEANS_ROUNDS = 20
SHARPENING_ROWS = 4096  # contexts that the vectors' length is set by
BISECTIONS = 50


@dataclass
class Screen:
    """A trained screen: vectors v [r, d], each cluster's ascending candidate ids, and figures of every round."""

    vectors: Tensor
    sets: list[Tensor]
    history: list[dict[str, float]] = field(default_factory=list)

    def assign(self, contexts: Tensor) -> Tensor:
        """Contexts [n, d] -> the cluster [n] of each, Equation 2."""
        clusters: Tensor = (contexts @ self.vectors.T).argmax(dim=1)
        return clusters


def spherical_kmeans(contexts: Tensor, clusters: int, seed: int, progress: Progress = quiet) -> Tensor:
    """Unit centroids [r, d] of the directions of `contexts` [n, d]; an empty cluster begins again from a far row."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.nn.functional.normalize(contexts, dim=1)
    centroids = directions[torch.randperm(len(directions), generator=generator)[:clusters]].clone()
    for done in range(KMEANS_ROUNDS):
        best = torch.cat(
            [(part @ centroids.T).max(dim=1).values for part in torch.split(directions, KMEANS_CHUNK_ROWS)]
        )
        nearest = torch.cat([(part @ centroids.T).argmax(dim=1) for part in torch.split(directions, KMEANS_CHUNK_ROWS)])
        sums = torch.zeros_like(centroids).index_add_(0, nearest, directions)
        empty = torch.bincount(nearest, minlength=clusters) == 0
        sums[empty] = directions[best.argsort()[: int(empty.sum())]]
        centroids = torch.nn.functional.normalize(sums, dim=1)
        progress("spherical k-means", done + 1, KMEANS_ROUNDS)
    return centroids


def relaxed_loss(choice: Tensor, ids: Tensor, c: Tensor, overlap: Tensor, lam: float) -> Tensor:
    """[b]: Equation 8 without its budget term, for relaxed choices [b, r] of clusters and the best classes [b, depth].

    Equals sum_{s in y} (1 - sum_t p_t c_ts)^2 + lam sum_{s not in y} (sum_t p_t c_ts)^2, but with the second sum over
    all classes taken as the quadratic form p^T (c c^T) p, so that no array has V columns. c: the sets' indicator
    [r, V]. overlap: c c^T [r, r].
    """
    coverage = torch.einsum("br,brm->bm", choice, c[:, ids].transpose(0, 1))
    everything = ((choice @ overlap) * choice).sum(dim=1)
    loss: Tensor = ((1 - coverage) ** 2).sum(dim=1) + lam * (everything - (coverage**2).sum(dim=1))
    return loss


def sample_straight_through(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Equations 4 and 5: a one-hot Gumbel sample [b, r] with the gradient of its softmax."""
    noise = -torch.log(-torch.log(torch.rand(logits.shape, generator=generator).clamp(1e-9, 1 - 1e-9)))
    soft = ((logits.log_softmax(dim=1) + noise) / temperature).softmax(dim=1)
    hard = torch.nn.functional.one_hot(soft.argmax(dim=1), logits.shape[1]).to(soft.dtype)
    return soft + (hard - soft).detach()


def sharpen_vectors(vectors: Tensor, contexts: Tensor, confidence: float) -> Tensor:
    """`vectors` [r, d] times one factor, so that the likeliest cluster has the mean probability `confidence`.

    The order of clusters stays the same for every context.
    """
    sample = contexts[:SHARPENING_ROWS] @ vectors.T
    low, high = 1e-3, 1e4
    for _ in range(BISECTIONS):
        middle = (low * high) ** 0.5
        sharp = float((sample * middle).softmax(dim=1).max(dim=1).values.mean()) < confidence
        low, high = (middle, high) if sharp else (low, middle)
    result: Tensor = vectors * (low * high) ** 0.5
    return result


def train_screen(
    contexts: Tensor,
    best: BestClasses,
    options: ScreenOptions,
    always: Tensor | None = None,
    progress: Progress = quiet,
    checkpoint: Path | None = None,
    background: Background | None = None,
) -> Screen:
    """Algorithm 1: spherical k-means, then rounds of gradient steps on (8) and of the knapsack (7).

    contexts: [n, d]. best: their exact best classes. always: [m] ids that every set holds. background: what sets are
    filled up with. checkpoint: a file written after every round; a training of the same contexts, background and
    options goes on from it and ends with the same screen. Raises ValueError for a file that is none.
    """
    run = Run(contexts, best, options, always, background)
    filling = (None,) if background is None else (background.rows, background.ids, background.values)
    fingerprint = name_training(repr(options), contexts, best.ids, always, *filling)
    run.start(load_checkpoint(checkpoint, fingerprint), progress)
    while run.rounds_done < options.rounds:
        run.run_round(progress)
        save_checkpoint(checkpoint, fingerprint, run.state())
    return run.screen


class Run:
    """The state of one training: the vectors, their optimizer, and the screen as of the last round."""

    def __init__(
        self,
        contexts: Tensor,
        best: BestClasses,
        options: ScreenOptions,
        always: Tensor | None,
        background: Background | None,
    ) -> None:
        self.contexts, self.best, self.options = contexts, best, options
        self.always, self.background = always, background
        self.generator = torch.Generator().manual_seed(options.seed)
        self.rounds_done = 0

    def start(self, state: dict[str, Any] | None, progress: Progress) -> None:
        """Begin with the vectors of a checkpoint's state, or of spherical k-means."""
        start: Tensor = state["vectors"] if state else cluster_contexts(self.contexts, self.options, progress)
        self.vectors = start.clone().requires_grad_()
        self.optimizer = torch.optim.Adam([self.vectors], lr=self.options.learning_rate)
        self.screen = Screen(start.clone(), [])
        self.update_screen()
        if state:
            self.optimizer.load_state_dict(state["optimizer"])
            self.generator.set_state(state["generator"])
            self.screen.history, self.rounds_done = list(state["history"]), state["done"]

    def state(self) -> dict[str, Any]:
        """All that `start` takes up, as a checkpoint holds it."""
        return {
            "done": self.rounds_done,
            "vectors": self.screen.vectors,
            "history": self.screen.history,
            "optimizer": self.optimizer.state_dict(),
            "generator": self.generator.get_state(),
        }

    def update_screen(self) -> None:
        """Choose the candidate sets for the vectors as they are now, and log what the screen covers."""
        self.screen.vectors = self.vectors.detach().clone()
        clusters_of_rows = self.screen.assign(self.contexts)
        self.screen.sets = choose_candidate_sets(
            clusters_of_rows, self.best, self.options, self.always, self.background
        )
        self.screen.history.append(measure_screen(self.screen, self.contexts, self.best))

    def run_round(self, progress: Progress) -> None:
        """Train the vectors for one round with the sets fixed, then choose the sets anew."""
        options, screen = self.options, self.screen
        c = make_indicator(screen.sets, self.best.classes)
        share = torch.bincount(screen.assign(self.contexts), minlength=options.clusters).float() / len(self.contexts)
        hot, cold = options.temperatures
        temperature = hot * (cold / hot) ** (self.rounds_done / max(1, options.rounds - 1))
        for epoch in range(options.epochs):
            share = self.run_epoch(c, share, temperature)
            done = self.rounds_done * options.epochs + epoch + 1
            progress("screen", done, options.rounds * options.epochs)
        self.rounds_done += 1
        self.update_screen()

    def run_epoch(self, c: Tensor, share: Tensor, temperature: float) -> Tensor:
        """One pass over the contexts in random order.

        c: the sets' indicator [r, V]. share: [r], a moving average of the share of contexts that choose each cluster;
        returned as it is after the pass.
        """
        options, overlap, sizes = self.options, c @ c.T, c.sum(dim=1)
        order = torch.randperm(len(self.contexts), generator=self.generator)
        for rows in torch.split(order, options.batch):
            choice = sample_straight_through(self.contexts[rows] @ self.vectors.T, temperature, self.generator)
            mean = choice.mean(dim=0)
            share = 0.99 * share + 0.01 * mean.detach()
            candidates = (share + mean - mean.detach()) @ sizes  # the moving average's value, the batch's gradient
            loss = relaxed_loss(choice, self.best.ids[rows], c, overlap, options.lam).sum()
            loss = loss + options.gamma * torch.relu(candidates - options.budget)
            self.optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self.optimizer.step()
        return share


def cluster_contexts(contexts: Tensor, options: ScreenOptions, progress: Progress) -> Tensor:
    """The vectors [r, d] that training begins with: centroids of spherical k-means, sharpened."""
    centroids = spherical_kmeans(contexts, options.clusters, options.seed, progress=progress)
    return sharpen_vectors(centroids, contexts, options.confidence)


def measure_screen(screen: Screen, contexts: Tensor, best: BestClasses) -> dict[str, float]:
    """`p1`, `p`: shares of contexts' best class and best classes inside their set.

    `candidates`: mean size of the set.
    """
    c = make_indicator(screen.sets, best.classes).bool()
    clusters_of_rows = screen.assign(contexts)
    inside = c[clusters_of_rows[:, None], best.ids]
    sizes = c.sum(dim=1).float()
    return {
        "p1": float(inside[:, 0].float().mean()),
        "p": float(inside.float().mean()),
        "candidates": float(sizes[clusters_of_rows].mean()),
    }
