"""hnswlib, the reference implementation of HNSW (Malkov and Yashunin 2016, arXiv 1603.09320)."""

from __future__ import annotations

from itertools import product
from typing import Any, ClassVar

import numpy as np
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import BoolArray, Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import BASES, lift_queries, lift_rows, load_basis

from .hnsw import list_beam_settings

LARGE_BUILDS: tuple[Options, ...] = tuple(
    {"basis": basis, "links": links, "construction": beam}
    for beam, links, basis in product((500, 5000), (16, 32, 64), BASES)
)


class HnswIp(Contender):
    """The graph on inner products as they are."""

    name: ClassVar[str] = "hnswlib ip"
    builds: ClassVar[tuple[Options, ...]] = tuple({"basis": basis, "links": 16, "construction": 200} for basis in BASES)
    needs: ClassVar[tuple[str, ...]] = ("hnswlib",)
    own_threads: ClassVar[bool] = True
    has_filter: ClassVar[bool] = True
    lift: ClassVar[bool] = False

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        import hnswlib

        self.basis = load_basis(self.build["basis"], dense, contexts)
        rows = lift_rows(self.basis.rows) if self.lift else self.basis.rows
        self.index: Any = hnswlib.Index(space="ip", dim=rows.shape[1])
        self.index.init_index(len(rows), M=self.build["links"], ef_construction=self.build["construction"])
        self.index.set_num_threads(self.threads)
        self.index.add_items(rows)

    def settings(self) -> list[Options]:
        return list_beam_settings("ef", len(self.basis.ids))

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        return self.search(contexts, k, {})

    def make_filter(self, marks: BoolArray) -> Any:
        """A function of a position, which hnswlib calls for all that it meets."""
        return marks[self.basis.ids].tolist().__getitem__

    def topk_permitted(self, contexts: FloatArray, k: int, permitted: Any) -> IdArray:
        return self.search(contexts, k, {"filter": permitted})

    def search(self, contexts: FloatArray, k: int, restriction: Options) -> IdArray:
        """Search all classes, or those that a `filter` permits."""
        queries = self.basis.queries(contexts)
        queries = lift_queries(queries) if self.lift else queries
        self.index.set_ef(max(self.setting.get("ef", 100), k))
        try:
            positions, _ = self.index.knn_query(queries, min(k, len(self.basis.ids)), **restriction)
        except RuntimeError:  # some row reached fewer than k
            return self.basis.classes(np.concatenate([self.search_fewer(query, k, restriction) for query in queries]))
        return self.basis.classes(pad_positions(positions, k))

    def search_fewer(self, query: FloatArray, k: int, restriction: Options) -> IdArray:
        """[1, k]: the best of the few rows that the graph leads to from here; hnswlib refuses to say how many."""
        for fewer in range(min(k, len(self.basis.ids)), 0, -1):
            try:
                positions, _ = self.index.knn_query(query, fewer, **restriction)
            except RuntimeError:
                continue
            return pad_positions(positions, k)
        return np.full((1, k), -1, np.int64)

    def size(self) -> int:
        return int(self.index.index_file_size())


class HnswFgd(HnswIp):
    """Fast graph decoder (Zhang et al. 2018, arXiv 1806.04189): the graph of lifted rows, as `hnsw` has them."""

    name: ClassVar[str] = "hnswlib FGD"
    lift: ClassVar[bool] = True


class HnswIpLarge(HnswIp):
    """Graphs over inner products with more links, which are more precise and slower."""

    name: ClassVar[str] = "hnswlib ip, large"
    builds: ClassVar[tuple[Options, ...]] = LARGE_BUILDS
    quick: ClassVar[bool] = False


class HnswFgdLarge(HnswFgd):
    """Better and slower graphs of lifted rows."""

    name: ClassVar[str] = "hnswlib FGD, large"
    builds: ClassVar[tuple[Options, ...]] = LARGE_BUILDS
    quick: ClassVar[bool] = False


def pad_positions(positions: Any, k: int) -> IdArray:
    """[B, m <= k] -> [B, k] int64 with -1 at the end."""
    missing = k - positions.shape[1]
    return np.pad(positions.astype(np.int64), ((0, 0), (0, missing)), constant_values=-1)
