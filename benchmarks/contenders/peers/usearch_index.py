"""usearch: HNSW (Malkov and Yashunin 2016, arXiv 1603.09320) with hand-written kernels, in float32 or bfloat16."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import lift_queries, lift_rows, load_basis, rescore_candidates

from .hnsw import BASES_AND_LIFTS, LARGE_GRAPHS, list_beam_settings, list_graph_builds

SMALL_GRAPH = ((16, 200),)
CANDIDATES_PER_K = 4  # taken out of a graph of rounded rows, to be ordered by exact scores


class Usearch(Contender):
    """The graph on inner products; setting `expansion` is HNSW's ef."""

    name: ClassVar[str] = "usearch"
    builds: ClassVar[tuple[Options, ...]] = (
        *list_graph_builds(SMALL_GRAPH, BASES_AND_LIFTS[:1], dtype="f32"),
        *list_graph_builds(SMALL_GRAPH, BASES_AND_LIFTS, dtype="bf16"),
    )
    needs: ClassVar[tuple[str, ...]] = ("usearch",)
    own_threads: ClassVar[bool] = True

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        from usearch.index import Index

        self.dense = dense
        self.basis = load_basis(self.build["basis"], dense, contexts)
        rows = lift_rows(self.basis.rows) if self.build["lift"] else self.basis.rows
        self.index: Any = Index(
            ndim=rows.shape[1],
            metric="ip",
            dtype=self.build["dtype"],
            connectivity=self.build["links"],
            expansion_add=self.build["construction"],
        )
        self.index.add(np.arange(len(rows)), rows, threads=self.threads)

    def settings(self) -> list[Options]:
        """Up to a quarter of the classes."""
        return list_beam_settings("expansion", len(self.basis.ids))

    def use(self, setting: Options) -> None:
        super().use(setting)
        self.index.expansion_search = setting["expansion"]

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        if self.build["dtype"] == "f32":
            return self.search_graph(contexts, k)
        return rescore_candidates(self.dense, contexts, self.search_graph(contexts, CANDIDATES_PER_K * k), k)

    def search_graph(self, contexts: FloatArray, k: int) -> IdArray:
        """[B, k]: what the graph leads to, best first by its own arithmetic; -1 where that is less than k."""
        queries = self.basis.queries(contexts)
        queries = lift_queries(queries) if self.build["lift"] else queries
        matches = [self.index.search(queries[0], k, threads=1)] if len(queries) == 1 else None
        matches = matches or self.index.search(queries, k, threads=self.threads)
        positions = np.full((len(queries), k), -1, np.int64)
        for row, match in zip(positions, matches, strict=True):
            row[: len(match.keys)] = match.keys
        return self.basis.classes(positions)

    def size(self) -> int:
        rescoring = 0 if self.build["dtype"] == "f32" else self.dense.weight.nbytes
        return int(self.index.serialized_length) + rescoring


class UsearchLarge(Usearch):
    """Graphs that take minutes to build, in the two bases that the quick grid's fastest runs had."""

    name: ClassVar[str] = "usearch, large"
    builds: ClassVar[tuple[Options, ...]] = list_graph_builds(
        LARGE_GRAPHS, (BASES_AND_LIFTS[0], BASES_AND_LIFTS[-1]), dtype="bf16"
    )
    quick: ClassVar[bool] = False
