"""FAISS (Douze et al. 2024, arXiv 2401.08281), spelled as its index factory does.

Recipes end in `RFlat`: the best candidates of a coarse index are scored again by float32 rows. How many is the
setting `refined`; FAISS calls its ratio to k the `k_factor`.
"""

from __future__ import annotations

from abc import abstractmethod
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import BoolArray, Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import BASES, lift_queries, lift_rows, load_basis

from .hnsw import BASES_AND_LIFTS, LARGE_GRAPHS, list_beam_settings, list_graph_builds

REFINED_CANDIDATES = (50, 100, 200, 500, 750, 1000, 1500, 2000, 5000)


class FaissIndex(Contender):
    """An index of inner products; settings `refined`, `nprobe` and `efSearch` where the recipe has such a part."""

    needs: ClassVar[tuple[str, ...]] = ("faiss",)
    own_threads: ClassVar[bool] = True
    has_filter: ClassVar[bool] = True

    @abstractmethod
    def create_empty(self, dim: int) -> Any:
        """The untrained FAISS index of rows [V, dim]."""

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        import faiss

        self.faiss: Any = faiss
        faiss.omp_set_num_threads(self.threads)
        self.basis = load_basis(self.build["basis"], dense, contexts)
        rows = lift_rows(self.basis.rows) if self.build.get("lift") else self.basis.rows
        self.index = self.create_empty(rows.shape[1])
        self.index.train(rows)
        self.index.add(rows)

    def create_index(self, factory: str, dim: int) -> Any:
        """What FAISS makes of a factory string."""
        return self.faiss.index_factory(dim, factory, self.faiss.METRIC_INNER_PRODUCT)

    def use(self, setting: Options) -> None:
        super().use(setting)
        for name, value in setting.items():
            if name != "refined":
                self.faiss.ParameterSpace().set_index_parameter(self.index, name, value)

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        return self.search(contexts, k, {})

    def make_filter(self, marks: BoolArray) -> Any:
        return self.faiss.IDSelectorBitmap(np.packbits(marks[self.basis.ids], bitorder="little"))

    def topk_permitted(self, contexts: FloatArray, k: int, permitted: Any) -> IdArray:
        return self.search(contexts, k, {"params": self.make_parameters(k, permitted)})

    def make_parameters(self, k: int, selector: Any) -> Any:
        """The setting as FAISS takes it beside a selector of classes."""
        setting = {name: value for name, value in self.setting.items() if name != "refined"}
        kinds = {"nprobe": self.faiss.SearchParametersIVF, "efSearch": self.faiss.SearchParametersHNSW}
        kind = next((kinds[name] for name in setting), self.faiss.SearchParameters)
        own = kind(sel=selector, **setting)
        if "refined" not in self.setting:
            return own
        return self.faiss.IndexRefineSearchParameters(k_factor=self.find_factor(k), base_index_params=own)

    def find_factor(self, k: int) -> float:
        """How many candidates are refined, as a multiple of k."""
        return max(1.0, float(self.setting["refined"]) / k)

    def search(self, contexts: FloatArray, k: int, parameters: Options) -> IdArray:
        """Search by the setting, or by `params` where there are some."""
        self.faiss.omp_set_num_threads(self.threads)  # global: another contender may have changed it
        if "refined" in self.setting:
            self.index.k_factor = self.find_factor(k)
        queries = self.basis.queries(contexts)
        _, positions = self.index.search(lift_queries(queries) if self.build.get("lift") else queries, k, **parameters)
        return self.basis.classes(positions)

    def size(self) -> int:
        return int(self.faiss.serialize_index(self.index).nbytes)


class FaissFlat(FaissIndex):
    """An exhaustive search over all rows in float32."""

    name: ClassVar[str] = "faiss flat"
    builds: ClassVar[tuple[Options, ...]] = ({"basis": "raw"},)  # the answers are exact in every basis

    def create_empty(self, dim: int) -> Any:
        return self.create_index("Flat", dim)


class FaissCodes(FaissIndex):
    """Every row in a byte or half a byte a component, then refined."""

    name: ClassVar[str] = "faiss SQ"
    builds: ClassVar[tuple[Options, ...]] = tuple(
        {"basis": basis, "codes": codes} for codes in ("SQ8", "SQ4") for basis in BASES
    )

    def create_empty(self, dim: int) -> Any:
        return self.create_index(f"{self.build['codes']},RFlat", dim)

    def settings(self) -> list[Options]:
        """Such codes leave little to refine."""
        return [{"refined": refined} for refined in (20, 50, 100, 200)]


class FaissProductQuantizer(FaissIndex):
    """Pairs of components in four bits, scanned in registers (Andre et al. 2017, arXiv 1704.07355), then refined."""

    name: ClassVar[str] = "faiss PQ fast-scan"
    builds: ClassVar[tuple[Options, ...]] = tuple({"basis": basis, "pair": pair} for pair in (2, 1) for basis in BASES)

    def create_empty(self, dim: int) -> Any:
        """Components are padded to whole blocks."""
        blocks = -(-dim // self.build["pair"])
        return self.create_index(f"Pad{blocks * self.build['pair']},PQ{blocks}x4fs,RFlat", dim)

    def settings(self) -> list[Options]:
        """Each setting rescores so many candidates exactly: up to 5,000."""
        return [{"refined": refined} for refined in REFINED_CANDIDATES]


class FaissTruncated(FaissProductQuantizer):
    """A coarse index of the first `width` axes, then refined: in the whitened basis a context-weighted SVD preview."""

    name: ClassVar[str] = "faiss truncated"

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """Axes have an order in the whitened basis alone."""
        widths = [2 * round(dense.dim / share / 2) for share in (8, 6, 4.5, 3, 2)]
        fast = [{"basis": "whitened", "width": width, "codes": f"PQ{width // 2}x4fs"} for width in widths]
        fine = [{"basis": "whitened", "width": width, "codes": f"PQ{width}x4fs"} for width in widths[:4]]
        return [*({"basis": "whitened", "width": width, "codes": "SQ8"} for width in widths[:4]), *fast, *fine]

    def create_empty(self, dim: int) -> Any:
        """The parts are kept, since FAISS does not own them."""
        width = self.build["width"]
        self.first = self.faiss.RemapDimensionsTransform(dim, width, False)
        self.codes = self.create_index(self.build["codes"], width)
        self.coarse = self.faiss.IndexPreTransform(self.first, self.codes)
        return self.faiss.IndexRefineFlat(self.coarse)


class FaissInverted(FaissIndex):
    """k-means cells of the rows, the `nprobe` best searched: in float32, or in bytes or fast-scan codes and refined."""

    name: ClassVar[str] = "faiss IVF"
    times: ClassVar[tuple[int, ...]] = (4, 8)  # sqrt(V) cells; FAISS advises 4 to 16

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        cells = [max(1, round(times * sqrt(dense.classes))) for times in cls.times]
        return [
            {"basis": basis, "cells": count, "codes": codes}
            for count in cells
            for codes in ("Flat", "SQ8", "PQ")
            for basis in BASES
        ]

    def create_empty(self, dim: int) -> Any:
        blocks, cells = -(-dim // 2), f"IVF{self.build['cells']}"
        fast = f"Pad{2 * blocks},{cells},PQ{blocks}x4fs,RFlat"
        return self.create_index(
            {"Flat": f"{cells},Flat", "SQ8": f"{cells},SQ8,RFlat", "PQ": fast}[self.build["codes"]], dim
        )

    def settings(self) -> list[Options]:
        """Each setting probes so many cells: up to all of them."""
        cells = self.build["cells"]
        probes = sorted({max(1, cells // share) for share in (64, 32, 16, 8, 4, 2, 1)})
        if self.build["codes"] == "Flat":
            return [{"nprobe": probe} for probe in probes]
        refined = (50, 200) if self.build["codes"] == "SQ8" else (200, 500, 1000)
        return [{"nprobe": probe, "refined": count} for probe in probes for count in refined]


class FaissManyCells(FaissInverted):
    """As many cells as FAISS advises at most."""

    name: ClassVar[str] = "faiss IVF, many cells"
    quick: ClassVar[bool] = False
    times: ClassVar[tuple[int, ...]] = (16,)


class FaissGraph(FaissIndex):
    """HNSW (Malkov and Yashunin 2016, arXiv 1603.09320) on inner products, of rows lifted as for FGD or not."""

    name: ClassVar[str] = "faiss HNSW"
    builds: ClassVar[tuple[Options, ...]] = list_graph_builds(((32, 100),), BASES_AND_LIFTS)

    def create_empty(self, dim: int) -> Any:
        index = self.create_index(f"HNSW{self.build['links']},Flat", dim)
        index.hnsw.efConstruction = self.build["construction"]
        return index

    def settings(self) -> list[Options]:
        """Up to a quarter of the classes."""
        return list_beam_settings("efSearch", len(self.basis.ids))


class FaissLargeGraph(FaissGraph):
    """Graphs that take minutes to build, in the two bases that the quick grid's fastest runs had."""

    name: ClassVar[str] = "faiss HNSW, large"
    builds: ClassVar[tuple[Options, ...]] = list_graph_builds(LARGE_GRAPHS, (BASES_AND_LIFTS[0], BASES_AND_LIFTS[-1]))
    quick: ClassVar[bool] = False
