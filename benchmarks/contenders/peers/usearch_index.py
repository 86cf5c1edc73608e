"""usearch: HNSW (Malkov and Yashunin 2016, arXiv 1603.09320) with hand-written kernels, in float32 or bfloat16."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import basis_of, rescored

from .hnswlib_indexes import BEAMS, LARGE, lifted, lifted_queries

BASES = (("raw", False), ("raw", True), ("whitened", True))  # basis, and whether rows are lifted as for FGD
SPARE = 4  # times k are taken out of a graph of rounded rows, to be ordered by exact scores


class Usearch(Contender):
    """The graph on inner products; setting `expansion` is HNSW's ef."""

    name: ClassVar[str] = "usearch"
    needs: ClassVar[tuple[str, ...]] = ("usearch",)
    own_threads: ClassVar[bool] = True

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """See Contender.grid."""
        del dense
        shapes = [("f32", *BASES[0]), *(("bf16", *shape) for shape in BASES)]
        return [
            {"basis": basis, "lift": lift, "dtype": kind, "links": 16, "construction": 200}
            for kind, basis, lift in shapes
        ]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        """See Contender.fit."""
        from usearch.index import Index

        self.dense = dense
        self.basis = basis_of(self.build["basis"], dense, contexts)
        rows = lifted(self.basis.rows) if self.build["lift"] else self.basis.rows
        self.index: Any = Index(
            ndim=rows.shape[1],
            metric="ip",
            dtype=self.build["dtype"],
            connectivity=self.build["links"],
            expansion_add=self.build["construction"],
        )
        self.index.add(np.arange(len(rows)), rows, threads=self.threads)

    def settings(self) -> list[Options]:
        """See Contender.settings; up to a quarter of the classes."""
        quarter = len(self.basis.ids) // 4
        return [{"expansion": beam} for beam in sorted({min(beam, quarter) for beam in BEAMS})]

    def use(self, setting: Options) -> None:
        """See Contender.use."""
        super().use(setting)
        self.index.expansion_search = setting["expansion"]

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        """See Contender.topk."""
        if self.build["dtype"] == "f32":
            return self.found(contexts, k)
        return rescored(self.dense, contexts, self.found(contexts, SPARE * k), k)

    def found(self, contexts: FloatArray, k: int) -> IdArray:
        """[B, k]: what the graph leads to, best first by its own arithmetic; -1 where that is less than k."""
        queries = self.basis.queries(contexts)
        queries = lifted_queries(queries) if self.build["lift"] else queries
        matches = [self.index.search(queries[0], k, threads=1)] if len(queries) == 1 else None
        matches = matches or self.index.search(queries, k, threads=self.threads)
        positions = np.full((len(queries), k), -1, np.int64)
        for row, match in zip(positions, matches, strict=True):
            row[: len(match.keys)] = match.keys
        return self.basis.classes(positions)

    def size(self) -> int:
        """See Contender.size."""
        rescoring = 0 if self.build["dtype"] == "f32" else self.dense.weight.nbytes
        return int(self.index.serialized_length) + rescoring


class UsearchLarge(Usearch):
    """Graphs that take minutes to build, in the two bases that the quick grid's fastest runs had."""

    name: ClassVar[str] = "usearch, large"
    quick: ClassVar[bool] = False

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """See Contender.grid."""
        del dense
        return [
            {"basis": basis, "lift": lift, "dtype": "bf16", "links": links, "construction": beam}
            for links, beam in LARGE
            for basis, lift in (BASES[0], BASES[-1])
        ]


CONTENDERS: tuple[type[Contender], ...] = (Usearch, UsearchLarge)
