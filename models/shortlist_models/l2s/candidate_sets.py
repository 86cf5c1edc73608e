"""Candidate sets of a screen: which classes each cluster scores, under a budget (Learning to Screen's knapsack)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from shortlist_models.full import FullSoftmax
from shortlist_models.progress import Progress

BEST_CHUNK_ROWS = 1024


@dataclass(frozen=True)
class BestClasses:
    """The exact best `depth` classes of every context: ids [n, depth] int64, and how many classes there are."""

    ids: Tensor
    classes: int


def find_best_classes(dense: FullSoftmax, contexts: Tensor, depth: int, progress: Progress) -> BestClasses:
    """The dense layer's best `depth` classes of every one of `contexts` [n, d]."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(contexts), BEST_CHUNK_ROWS):
            parts.append(dense.logits(contexts[start : start + BEST_CHUNK_ROWS]).topk(depth, dim=1).indices)
            progress("exact best classes", min(start + BEST_CHUNK_ROWS, len(contexts)), len(contexts))
    return BestClasses(torch.cat(parts).clone(), len(dense.weight))


@dataclass(frozen=True)
class Background:
    """Softened probabilities of the leading classes of some fit contexts, which fill the sets up.

    rows: [m] int64, row numbers of the fit contexts. ids: [m, depth] int32. values: [m, depth] float32. The frequency
    of a class among the best is 0 where it was never among them; the mean of its probability over a cluster is not (not
    in the paper).
    """

    rows: Tensor
    ids: Tensor
    values: Tensor

    def means(self, clusters_of_rows: Tensor, clusters: int, classes: int) -> Tensor:
        """[r, V]: mean probability of every class over each cluster's contexts, given each context's cluster [n]."""
        owners = clusters_of_rows[self.rows]
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


def count_best_classes(clusters_of_rows: Tensor, best: BestClasses, clusters: int) -> Tensor:
    """[r, V] float32: n_ts, how many contexts of cluster t have class s among their best."""
    pairs = clusters_of_rows[:, None] * best.classes + best.ids
    counts = torch.bincount(pairs.reshape(-1), minlength=clusters * best.classes)
    return counts.reshape(clusters, best.classes).float()


def choose_candidate_sets(
    clusters_of_rows: Tensor,
    best: BestClasses,
    options: ScreenOptions,
    always: Tensor | None = None,
    background: Background | None = None,
) -> list[Tensor]:
    """Each cluster's ascending ids: the knapsack of Algorithm 1, by its greedy solution in closed form.

    With n_ts contexts of cluster t (N_t in all) that have s among their best, taking (t, s) is worth n_ts - lam (N_t -
    n_ts) and weighs N_t / N of the budget. Value over weight rises with n_ts / N_t, so the greedy knapsack takes pairs
    by falling conditional frequency until the budget is full: one global threshold. Frequencies are smoothed towards
    those of all contexts, or towards the cluster's part of `background`. `always` [m] is in every set, first of the
    budget.
    """
    counts = count_best_classes(clusters_of_rows, best, options.clusters)
    sizes = torch.bincount(clusters_of_rows, minlength=options.clusters).float()
    prior = counts.sum(dim=0).expand_as(counts) / max(1, len(clusters_of_rows))
    if background is not None:
        prior = background.means(clusters_of_rows, options.clusters, best.classes)
    frequency = (counts + options.smoothing * prior) / (sizes[:, None] + max(options.smoothing, 1e-9))
    if always is not None:
        frequency[:, always] = torch.inf
    in_set = fill_budget(frequency, sizes / max(1.0, float(sizes.sum())), options)
    if always is not None:
        in_set[:, always] = True
    depth = best.ids.shape[1]
    return [row.nonzero()[:, 0] if row.sum() >= depth else frequency[t].topk(depth).indices.sort().values
            for t, row in enumerate(in_set)]  # fmt: skip


def fill_budget(frequency: Tensor, share: Tensor, options: ScreenOptions) -> Tensor:
    """[r, V] bool: pairs by falling `frequency` until the sum of `share` [r] of their clusters reaches the budget."""
    useful = frequency > options.lam / (1 + options.lam)
    values = frequency[useful]
    weights = share[:, None].expand_as(frequency)[useful]
    order = values.argsort(descending=True, stable=True)
    fits = weights[order].double().cumsum(0) <= options.budget
    within_budget = torch.zeros(len(values), dtype=torch.bool)
    within_budget[order[fits]] = True
    in_set = torch.zeros_like(frequency, dtype=torch.bool)
    in_set[useful] = within_budget
    return in_set


def make_indicator(sets: list[Tensor], classes: int) -> Tensor:
    """C [r, V] float32: 1 where a class is in a cluster's set, else 0."""
    c = torch.zeros(len(sets), classes)
    for row, ids in zip(c, sets, strict=True):
        row[ids] = 1.0
    return c
