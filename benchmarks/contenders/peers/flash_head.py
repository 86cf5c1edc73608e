"""FlashHead (Tranheden et al. 2026, arXiv 2603.14591): balanced clusters of classes, the best of them scored exactly.

Weight rows are put into clusters of one size by spherical k-means. A query scores the unit centroids, then all rows of
the clusters with the best centroids. Equal sizes let rows be stored cluster by cluster, so that a probe is a
product with a contiguous block. (The paper's sampler and its quantised head are left out: top k of float32 is asked.)
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from shortlist.plans.common.selection import largest, ranked
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import basis_of

ROUNDS = 10
SEED = 0
CHUNK = 4096  # rows compared with all centroids at a time
SHARES = (64, 32, 16, 8, 6, 4)  # clusters / clusters probed; the paper probes a sixteenth
CACHED = 1 << 20  # bytes of weights that are gathered before they are multiplied: they should still be in the cache


def balanced_clusters(rows: FloatArray, count: int, seed: int = SEED) -> IdArray:
    """Spherical k-means of `rows` [V, D] into `count` <= V clusters whose sizes differ by one at most.

    Returns [count, largest size] positions; -1 ends the smaller clusters.
    """
    unit = normalised(rows)
    centroids = unit[np.random.default_rng(seed).choice(len(unit), count, replace=False)]
    sizes = np.full(count, len(unit) // count)
    sizes[: len(unit) % count] += 1
    for _ in range(ROUNDS):
        owners = balanced_owners(unit, centroids, sizes)
        by_cluster = np.argsort(owners, kind="stable")
        starts = np.cumsum(sizes) - sizes
        centroids = normalised(np.add.reduceat(unit[by_cluster], starts))
    members = np.full((count, sizes.max()), -1, np.int64)
    members[np.arange(sizes.max()) < sizes[:, None]] = by_cluster
    return members


def balanced_owners(unit: FloatArray, centroids: FloatArray, sizes: IdArray) -> IdArray:
    """[V]: a cluster for each of `unit` [V, D], `sizes` [C] rows to each.

    In turns, every row without a cluster asks the most similar one that has room; a cluster takes those that are most
    similar to it.
    """
    owners, room = np.full(len(unit), -1, np.int64), sizes.copy()
    while (free := (owners < 0).nonzero()[0]).size:
        open_still = room.nonzero()[0]
        best, similarity = most_similar(unit[free], centroids[open_still])
        wanted = open_still[best]
        taken = admitted(wanted, similarity, room)
        owners[free[taken]] = wanted[taken]
        room -= np.bincount(wanted[taken], minlength=len(room))
    return owners


def admitted(wanted: IdArray, similarity: FloatArray, room: IdArray) -> IdArray:
    """Positions of the rows that get in: for each cluster, the `room` [C] most similar of those that asked for it."""
    order = np.lexsort((-similarity, wanted))
    asked = np.bincount(wanted, minlength=len(room))
    place = np.arange(len(order)) - (np.cumsum(asked) - asked)[wanted[order]]
    return order[place < room[wanted[order]]]


def most_similar(unit: FloatArray, centroids: FloatArray) -> tuple[IdArray, FloatArray]:
    """The best of `centroids` for each of `unit` [n, D], and their inner product."""
    best, similarity = [], []
    for start in range(0, len(unit), CHUNK):
        products = unit[start : start + CHUNK] @ centroids.T
        best.append(products.argmax(axis=1))
        similarity.append(np.take_along_axis(products, best[-1][:, None], axis=1)[:, 0])
    return np.concatenate(best), np.concatenate(similarity)


def normalised(rows: FloatArray) -> FloatArray:
    """Rows of norm 1; a row of zeros stays."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: FloatArray = rows / np.maximum(norms, np.finfo(np.float32).tiny)
    return unit


class FlashHead(Contender):
    """Setting `probes`: clusters whose rows are scored."""

    name: ClassVar[str] = "FlashHead"

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """See Contender.grid; the paper's clusters have 16 rows."""
        del dense
        return [{"basis": basis, "rows": rows} for rows in (16, 32) for basis in ("raw", "whitened")]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        """See Contender.fit."""
        self.basis = basis_of(self.build["basis"], dense, contexts)
        rows = self.basis.rows
        members = balanced_clusters(rows, -(-len(rows) // self.build["rows"]))
        self.ids = self.basis.classes(members)  # [C, m]
        self.blocks = np.where(members[:, :, None] < 0, np.float32(0), rows[members])  # [C, m, D]
        self.centroids = normalised(normalised(rows)[members].sum(axis=1, where=members[:, :, None] >= 0))

    def settings(self) -> list[Options]:
        """See Contender.settings; up to a quarter of the clusters."""
        count = len(self.ids)
        return [{"probes": probes} for probes in sorted({max(1, count // share) for share in SHARES})]

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        """See Contender.topk."""
        queries = self.basis.queries(contexts)
        return np.stack([self.best(query, k) for query in queries])

    def best(self, query: FloatArray, k: int) -> IdArray:
        """[k]: the best rows of the clusters probed for `query` [D]; -1 pads."""
        probed = largest(self.centroids @ query, self.setting.get("probes", 1))
        ids, scores = self.ids[probed].ravel(), self.scores(query, probed).ravel()
        scores[ids < 0] = -np.inf
        found = ids[ranked(scores, k)]
        return np.pad(found, (0, k - len(found)), constant_values=-1)

    def scores(self, query: FloatArray, probed: IdArray) -> FloatArray:
        """[len(probed), m]: inner products with the rows of the probed clusters."""
        _, rows, dim = self.blocks.shape
        step = max(1, CACHED // (4 * rows * dim))
        buffer = np.empty((step, rows, dim), np.float32)
        scores = np.empty((len(probed), rows), np.float32)
        for start in range(0, len(probed), step):
            some = probed[start : start + step]
            block = np.take(self.blocks, some, axis=0, out=buffer[: len(some)], mode="clip")  # raise would copy first
            np.dot(block.reshape(-1, dim), query, out=scores[start : start + step].reshape(-1))
        return scores

    def size(self) -> int:
        """See Contender.size."""
        change = 0 if self.basis.change is None else self.basis.change.nbytes
        return self.blocks.nbytes + self.centroids.nbytes + self.ids.nbytes + change


CONTENDERS: tuple[type[Contender], ...] = (FlashHead,)
