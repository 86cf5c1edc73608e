"""ScaNN (Guo et al. 2020, arXiv 1908.10396): anisotropic hashing, k-means tree, exact reordering of the best.

Anisotropic hashing ("AH") keeps 4 bits for each pair of components; errors along the row count more than across.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import BASES, load_basis, rescore_candidates

REORDERED_CANDIDATES = (50, 100, 200, 500, 1000, 1500, 2000, 5000, 10000)
SCANN_BUILD_K = 10  # ScaNN wants one; every call gives its own


class Scann(Contender):
    """A searcher of inner products; settings `reorder` and, with a tree, `leaves`."""

    needs: ClassVar[tuple[str, ...]] = ("scann",)
    own_threads: ClassVar[bool] = True

    @abstractmethod
    def describe(self, builder: Any) -> Any:
        """The builder with what this contender asks of it."""

    def builder(self) -> Any:
        """ScaNN's builder over the rows of the basis."""
        from scann import scann_ops_pybind

        return scann_ops_pybind.builder(self.basis.rows, SCANN_BUILD_K, "dot_product").set_n_training_threads(
            self.threads
        )

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        self.basis = load_basis(self.build["basis"], dense, contexts)
        self.searcher: Any = self.describe(self.builder()).reorder(REORDERED_CANDIDATES[0]).build()

    def settings(self) -> list[Options]:
        return [{"reorder": count} for count in REORDERED_CANDIDATES]

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        return self.search(contexts, k, max(k, self.setting.get("reorder", k)))

    def search(self, contexts: FloatArray, k: int, reorder: int) -> IdArray:
        """Ids [B, k], the best of `reorder` candidates by float32 rows; -1 where ScaNN found fewer."""
        queries = self.basis.queries(contexts)
        counts = (k, reorder, self.setting.get("leaves", -1))
        if len(queries) == 1:
            positions, scores = (part[None] for part in self.searcher.search(queries[0], *counts))
        elif self.threads == 1:
            positions, scores = self.searcher.search_batched(queries, *counts)
        else:
            self.searcher.set_num_threads(self.threads)
            share = -(-len(queries) // self.threads)
            positions, scores = self.searcher.search_batched_parallel(queries, *counts, batch_size=share)
        return self.basis.classes(pad_answers(positions, scores, k))

    def size(self) -> int:
        with TemporaryDirectory() as folder:
            self.searcher.serialize(folder)
            return sum(file.stat().st_size for file in Path(folder).iterdir())


class ScannHash(Scann):
    """AH of every row, then reordering: what ScaNN advises for 20,000 to 100,000 rows."""

    name: ClassVar[str] = "scann AH"
    builds: ClassVar[tuple[Options, ...]] = tuple(
        {"basis": basis, "block": block} for block in (2, 1) for basis in BASES
    )

    def describe(self, builder: Any) -> Any:
        return builder.score_ah(self.build["block"], anisotropic_quantization_threshold=0.2)


class ScannTree(Scann):
    """A tree of 1 to 4 sqrt(V) leaves, AH within them, then reordering."""

    name: ClassVar[str] = "scann tree"

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        leaves = [max(1, round(times * sqrt(dense.classes))) for times in (1, 2, 4)]
        return [{"basis": basis, "leaves": count} for count in leaves for basis in BASES]

    def describe(self, builder: Any) -> Any:
        tree = builder.tree(self.build["leaves"], self.build["leaves"], min_partition_size=1)
        return tree.score_ah(2, anisotropic_quantization_threshold=0.2)

    def settings(self) -> list[Options]:
        """Each setting searches so many leaves: up to all of them."""
        leaves = self.build["leaves"]
        counts = sorted({max(1, leaves // share) for share in (16, 8, 4, 2, 1)})
        usual = [{"leaves": count, "reorder": reorder} for count in counts for reorder in (50, 100, 200, 1000)]
        return [*usual, {"leaves": leaves, "reorder": 10000}]


class ScannBytes(Scann):
    """Every row in a byte a component, then reordering."""

    name: ClassVar[str] = "scann int8"
    builds: ClassVar[tuple[Options, ...]] = tuple({"basis": basis} for basis in BASES)

    def describe(self, builder: Any) -> Any:
        return builder.score_brute_force(quantize=True)

    def settings(self) -> list[Options]:
        """Bytes leave little to reorder."""
        return [{"reorder": count} for count in (20, 50, 200)]


class ScannTruncated(ScannHash):
    """AH of the first `width` axes, then rows in numpy: in the whitened basis a context-weighted SVD preview.

    ScaNN cannot truncate without a tree, and would reorder by the truncated rows.
    """

    name: ClassVar[str] = "scann truncated"

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """Axes have an order in the whitened basis alone."""
        widths = [2 * round(dense.dim / share / 2) for share in (6, 4.5, 3, 2)]
        return [{"basis": "whitened", "width": width, "block": block} for block in (2, 1) for width in widths]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        self.dense = dense
        basis = load_basis(self.build["basis"], dense, contexts)
        width = self.build["width"]
        change = None if basis.change is None else np.ascontiguousarray(basis.change[:, :width])
        self.basis = replace(basis, rows=np.ascontiguousarray(basis.rows[:, :width]), change=change)
        self.searcher = self.describe(self.builder()).build()

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        return rescore_candidates(self.dense, contexts, self.search(contexts, max(k, self.setting["reorder"]), -1), k)

    def size(self) -> int:
        return super().size() + self.dense.weight.nbytes


def pad_answers(positions: Any, scores: Any, k: int) -> IdArray:
    """[B, m <= k] of ScaNN -> [B, k] int64, -1 where nothing was found: scores are NaN there."""
    padded = np.full((len(positions), k), -1, np.int64)
    padded[:, : positions.shape[1]] = np.where(np.isnan(scores), -1, positions.astype(np.int64))
    return padded
