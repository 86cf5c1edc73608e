"""hnswlib, the reference implementation of HNSW (Malkov and Yashunin 2016, arXiv 1603.09320)."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import numpy as np
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import basis_of

BASES = ("raw", "whitened")
LARGE = ((16, 500), (32, 500), (64, 500), (32, 5000))  # M and efConstruction where other libraries draw such graphs
BEAMS = (50, 100, 200, 300, 400, 600, 1000, 2000, 5000, 20000)


class HnswIp(Contender):
    """The graph on inner products as they are."""

    name: ClassVar[str] = "hnswlib ip"
    needs: ClassVar[tuple[str, ...]] = ("hnswlib",)
    own_threads: ClassVar[bool] = True

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """See Contender.grid."""
        del dense
        return [{"basis": basis, "links": 16, "construction": 200} for basis in BASES]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        """See Contender.fit."""
        import hnswlib

        self.basis = basis_of(self.build["basis"], dense, contexts)
        rows = self.rows(self.basis.rows)
        self.index: Any = hnswlib.Index(space="ip", dim=rows.shape[1])
        self.index.init_index(len(rows), M=self.build["links"], ef_construction=self.build["construction"])
        self.index.set_num_threads(self.threads)
        self.index.add_items(rows)

    def rows(self, rows: FloatArray) -> FloatArray:
        """[V, D] -> the vectors that stand in the graph."""
        return rows

    def queries(self, queries: FloatArray) -> FloatArray:
        """[B, D] -> what the graph is asked."""
        return queries

    def settings(self) -> list[Options]:
        """See Contender.settings; up to a quarter of the classes, as FGD's authors did."""
        quarter = len(self.basis.ids) // 4
        return [{"ef": beam} for beam in sorted({min(beam, quarter) for beam in BEAMS})]

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        """See Contender.topk."""
        queries = self.queries(self.basis.queries(contexts))
        self.index.set_ef(max(self.setting.get("ef", 100), k))
        try:
            positions, _ = self.index.knn_query(queries, min(k, len(self.basis.ids)))
        except RuntimeError:  # some row reached fewer than k
            return self.basis.classes(np.concatenate([self.reached(query, k) for query in queries]))
        return self.basis.classes(padded(positions, k))

    def reached(self, query: FloatArray, k: int) -> IdArray:
        """[1, k]: the best of the few rows that the graph leads to from here; hnswlib refuses to say how many."""
        for fewer in range(min(k, len(self.basis.ids)), 0, -1):
            try:
                positions, _ = self.index.knn_query(query, fewer)
            except RuntimeError:
                continue
            return padded(positions, k)
        return np.full((1, k), -1, np.int64)

    def size(self) -> int:
        """See Contender.size."""
        return int(self.index.index_file_size())


class HnswFgd(HnswIp):
    """Fast graph decoder (Zhang et al. 2018, arXiv 1806.04189).

    Rows are lifted to [x; b; sqrt(U^2 - |x|^2 - b^2)], queries to [h; 1; 0], where U is the largest norm. All lifted
    rows have that norm: inner products order them as the paper's distances do, without the rounding of large squares.
    """

    name: ClassVar[str] = "hnswlib FGD"

    def rows(self, rows: FloatArray) -> FloatArray:
        """See HnswIp.rows."""
        return lifted(rows)

    def queries(self, queries: FloatArray) -> FloatArray:
        """See HnswIp.queries."""
        return lifted_queries(queries)


def large_grid() -> list[Options]:
    """M 16 to 64, efConstruction 500 and 5,000: minutes to hours to build."""
    shapes = product((500, 5000), (16, 32, 64), BASES)
    return [{"basis": basis, "links": links, "construction": beam} for beam, links, basis in shapes]


class HnswIpLarge(HnswIp):
    """Better and slower graphs; M 32 with efConstruction 5,000 is that of Loretz and Hochreiter (arXiv 2608.27460)."""

    name: ClassVar[str] = "hnswlib ip, large"
    quick: ClassVar[bool] = False

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """See Contender.grid."""
        del dense
        return large_grid()


class HnswFgdLarge(HnswFgd):
    """Better and slower graphs."""

    name: ClassVar[str] = "hnswlib FGD, large"
    quick: ClassVar[bool] = False

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """See Contender.grid."""
        del dense
        return large_grid()


def lifted(rows: FloatArray) -> FloatArray:
    """[V, D] -> [V, D + 1] float32, all of the largest row's norm: a last coordinate holds what is missing."""
    squares = np.square(rows, dtype=np.float64).sum(axis=1)
    return np.column_stack([rows, np.sqrt(squares.max() - squares)]).astype(np.float32)


def lifted_queries(queries: FloatArray) -> FloatArray:
    """[B, D] -> [B, D + 1] whose products with lifted rows are those with the rows."""
    return np.column_stack([queries, np.zeros(len(queries), np.float32)])


def padded(positions: Any, k: int) -> IdArray:
    """[B, m <= k] -> [B, k] int64 with -1 at the end."""
    missing = k - positions.shape[1]
    return np.pad(positions.astype(np.int64), ((0, 0), (0, missing)), constant_values=-1)


CONTENDERS: tuple[type[Contender], ...] = (HnswIp, HnswFgd, HnswIpLarge, HnswFgdLarge)
