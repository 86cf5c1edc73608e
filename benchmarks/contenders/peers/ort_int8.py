"""All classes in int8 in ONNX Runtime, then exact scores of the best: what quantisation gives without any index.

Each row of the weight has its own scale, each context vector too (`shortlist_models.svd.quantize_rows`, and the graph
pieces of method svd). The best N of the coarse scores are selected by a threshold outside the graph.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import numpy as np
import torch
from onnx import TensorProto
from shortlist.plans.common.selection import find_largest
from shortlist.runtime.session import Graph
from shortlist_exporter.graphs.builder import GraphBuilder, make_value
from shortlist_exporter.graphs.quantized import UINT8_ZERO_POINT, add_quantized_contexts
from shortlist_exporter.inputs.sources import Dense
from shortlist_models.svd import quantize_rows

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import BASES, Basis, load_basis, rescore_candidates

RESCORED_CANDIDATES = (8, 16, 32, 64, 128, 256)


def write_graph(basis: Basis, folder: Path) -> Path:
    """int8.onnx: `query` [B, D] -> `scores` [B, m] of the rows of `basis`; a raw bias is added in float32."""
    apart = basis.bias and basis.change is None
    rows = basis.rows[:, :-1] if apart else basis.rows
    graph = GraphBuilder(folder)
    scores = integer_products(graph, rows)
    if apart:
        scores = graph.node("Add", [scores, graph.tensor("bias", basis.rows[:, -1])], "biased")
    graph.node("Identity", [scores], "scores")
    query = make_value("query", TensorProto.FLOAT, ["B", rows.shape[1]])
    return graph.save("int8", [query], [make_value("scores", TensorProto.FLOAT, ["B", len(rows)])])


def integer_products(graph: GraphBuilder, rows: FloatArray) -> str:
    """`query` [B, D] times `rows` [m, D] through int8."""
    integers, scale = quantize_rows(torch.from_numpy(np.ascontiguousarray(rows)))
    query, query_scale = add_quantized_contexts(graph, "query")
    weights = graph.tensor("rows", integers.numpy().T.astype(np.int8))
    zero_point = graph.tensor("zero_point", np.uint8(UINT8_ZERO_POINT))
    sums = graph.node("MatMulInteger", [query, weights, zero_point], "sums")
    floats = graph.node("Cast", [sums], "float_sums", to=TensorProto.FLOAT)
    scaled = graph.node("Mul", [floats, graph.tensor("scale", scale.numpy().reshape(-1))], "scaled")
    return graph.node("Mul", [scaled, query_scale], "products")


class OnnxInt8(Contender):
    """Int8 products over all rows in ONNX Runtime; setting `rescored` is how many of the best are scored exactly."""

    name: ClassVar[str] = "int8 rows, onnxruntime"
    builds: ClassVar[tuple[Options, ...]] = tuple({"basis": basis} for basis in BASES)

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        self.dense = dense
        self.basis = load_basis(self.build["basis"], dense, contexts)
        with TemporaryDirectory() as folder:  # what is packed or mapped outlives its files
            self.graph = Graph(write_graph(self.basis, Path(folder)), "cpu", self.threads, prepack=True)

    def settings(self) -> list[Options]:
        return [{"rescored": count} for count in RESCORED_CANDIDATES]

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        queries = contexts if self.basis.change is None else self.basis.queries(contexts)
        count = max(self.setting.get("rescored", RESCORED_CANDIDATES[-1]), k)
        candidates = np.stack([find_largest(scores, count) for scores in self.graph(query=queries)[0]])
        return rescore_candidates(self.dense, contexts, self.basis.ids[candidates], k)

    def size(self) -> int:
        """Int8 rows with a scale and a bias each, the change of basis, the float32 rows."""
        rows, dim = map(int, self.basis.rows.shape)
        coarse: int = rows * (dim + 8)
        return coarse + self.basis.change_bytes + self.dense.weight.nbytes
