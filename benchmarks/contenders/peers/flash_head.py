"""FlashHead (Tranheden et al. 2026, arXiv 2603.14591): balanced clusters of classes, the best of them scored exactly.

Weight rows are put into clusters of one size by spherical k-means. A query scores the unit centroids, then all rows of
the clusters with the best centroids. Equal sizes let rows be stored cluster by cluster, so that a probe is a
product with a contiguous block. (The paper's sampler and its quantised head are left out: top k of float32 is asked.)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from shortlist.plans.common.selection import find_largest, rank_best
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options, spread_settings
from benchmarks.contenders.basis import BASES, load_basis

BALANCING_ROUNDS = 10
KMEANS_SEED = 0
ROWS_AT_A_TIME = 4096  # rows compared with all centroids at a time
CLUSTERS_PER_PROBE = (64, 32, 16, 8, 6, 4)  # clusters / clusters probed; the paper probes a sixteenth
GATHERED_BYTES = 1 << 20  # of weights, gathered before they are multiplied: they should still be in the cache


def make_even_clusters(rows: FloatArray, count: int, seed: int = KMEANS_SEED) -> IdArray:
    """Spherical k-means of `rows` [V, D] into `count` <= V clusters whose sizes differ by one at most.

    Returns [count, largest size] positions; -1 ends the smaller clusters.
    """
    unit = normalise_rows(rows)
    centroids = unit[np.random.default_rng(seed).choice(len(unit), count, replace=False)]
    sizes = np.full(count, len(unit) // count)
    sizes[: len(unit) % count] += 1
    for _ in range(BALANCING_ROUNDS):
        owners = assign_evenly(unit, centroids, sizes)
        by_cluster = np.argsort(owners, kind="stable")
        starts = np.cumsum(sizes) - sizes
        centroids = normalise_rows(np.add.reduceat(unit[by_cluster], starts))
    members = np.full((count, sizes.max()), -1, np.int64)
    members[np.arange(sizes.max()) < sizes[:, None]] = by_cluster
    return members


def assign_evenly(unit: FloatArray, centroids: FloatArray, sizes: IdArray) -> IdArray:
    """[V]: a cluster for each of `unit` [V, D], `sizes` [C] rows to each.

    In rounds, every row without a cluster goes to the most similar one that has room; a cluster with too many takes
    the most similar of them.
    """
    owners, room = np.full(len(unit), -1, np.int64), sizes.copy()
    while (free := (owners < 0).nonzero()[0]).size:
        open_still = room.nonzero()[0]
        best, similarity = find_most_similar(unit[free], centroids[open_still])
        choices = open_still[best]
        admissions = admit_rows(choices, similarity, room)
        owners[free[admissions]] = choices[admissions]
        room -= np.bincount(choices[admissions], minlength=len(room))
    return owners


def admit_rows(choices: IdArray, similarity: FloatArray, room: IdArray) -> IdArray:
    """Positions of the rows that get in: for each cluster, the `room` [C] most similar of those that asked for it."""
    order = np.lexsort((-similarity, choices))
    counts = np.bincount(choices, minlength=len(room))
    place = np.arange(len(order)) - (np.cumsum(counts) - counts)[choices[order]]
    return order[place < room[choices[order]]]


def find_most_similar(unit: FloatArray, centroids: FloatArray) -> tuple[IdArray, FloatArray]:
    """The best of `centroids` for each of `unit` [n, D], and their inner product."""
    best, similarity = [], []
    for start in range(0, len(unit), ROWS_AT_A_TIME):
        products = unit[start : start + ROWS_AT_A_TIME] @ centroids.T
        best.append(products.argmax(axis=1))
        similarity.append(np.take_along_axis(products, best[-1][:, None], axis=1)[:, 0])
    return np.concatenate(best), np.concatenate(similarity)


def normalise_rows(rows: FloatArray) -> FloatArray:
    """Rows of norm 1; a row of zeros stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = rows / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit


class FlashHead(Contender):
    """Setting `probes`: clusters whose rows are scored."""

    name: ClassVar[str] = "FlashHead"
    builds: ClassVar[tuple[Options, ...]] = tuple(  # the paper's clusters have 16 rows
        {"basis": basis, "rows": rows} for rows in (16, 32) for basis in BASES
    )

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        self.basis = load_basis(self.build["basis"], dense, contexts)
        rows = self.basis.rows
        members = make_even_clusters(rows, -(-len(rows) // self.build["rows"]))
        self.ids = self.basis.classes(members)  # [C, m]
        self.blocks = np.where(members[:, :, None] < 0, np.float32(0), rows[members])  # [C, m, D]
        self.centroids = normalise_rows(normalise_rows(rows)[members].sum(axis=1, where=members[:, :, None] >= 0))

    def settings(self) -> list[Options]:
        """Up to a quarter of the clusters."""
        return spread_settings("probes", len(self.ids), CLUSTERS_PER_PROBE)

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        queries = self.basis.queries(contexts)
        return np.stack([self.search_clusters(query, k) for query in queries])

    def search_clusters(self, query: FloatArray, k: int) -> IdArray:
        """[k]: the best rows of the clusters probed for `query` [D]; -1 pads."""
        clusters = find_largest(self.centroids @ query, self.setting.get("probes", 1))
        ids, scores = self.ids[clusters].ravel(), self.score_clusters(query, clusters).ravel()
        scores[ids < 0] = -np.inf
        best = ids[rank_best(scores, k)]
        return np.pad(best, (0, k - len(best)), constant_values=-1)

    def score_clusters(self, query: FloatArray, clusters: IdArray) -> FloatArray:
        """[len(probed), m]: inner products with the rows of the probed clusters."""
        _, rows, dim = self.blocks.shape
        step = max(1, GATHERED_BYTES // (4 * rows * dim))
        buffer = np.empty((step, rows, dim), np.float32)
        scores = np.empty((len(clusters), rows), np.float32)
        for start in range(0, len(clusters), step):
            some = clusters[start : start + step]
            block = np.take(self.blocks, some, axis=0, out=buffer[: len(some)], mode="clip")  # raise would copy first
            np.dot(block.reshape(-1, dim), query, out=scores[start : start + step].reshape(-1))
        return scores

    def size(self) -> int:
        return self.blocks.nbytes + self.centroids.nbytes + self.ids.nbytes + self.basis.change_bytes
