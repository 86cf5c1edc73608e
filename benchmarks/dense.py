"""Every spelling of the dense head in ONNX Runtime; the fastest is what others are compared with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper
from shortlist.runtime import Graph
from shortlist.selection import ranked
from shortlist_exporter.graphs import GraphBuilder, value
from shortlist_exporter.sources import Dense

Contexts = npt.NDArray[np.float32]
TopK = Callable[[Contexts, int], npt.NDArray[np.int64]]


def spellings(dense: Dense, folder: Path, threads: int) -> dict[str, TopK]:
    """Name -> function (contexts [B, d], k) -> ids [B, k]. None of them computes a normaliser."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, TopK] = {}
    for product in ("MatMul", "Gemm"):
        for selection in ("TopK", "threshold"):
            path = written(dense, folder, product, in_graph=selection == "TopK")
            for prepack in (True, False):
                graph = Graph(path, "cpu", threads, prepack=prepack)
                name = f"{product} + {selection}, weights {'packed' if prepack else 'as mapped'}"
                found[name] = graph_topk(graph) if selection == "TopK" else threshold_topk(graph)
    return found


def graph_topk(graph: Graph) -> TopK:
    """Selection by ONNX TopK."""
    return lambda contexts, k: graph(context=contexts, k=np.array([k], np.int64))[0]


def threshold_topk(graph: Graph) -> TopK:
    """Selection by this project's threshold, outside the graph."""
    return lambda contexts, k: np.stack([ranked(row, k) for row in graph(context=contexts)[0]])


def written(dense: Dense, folder: Path, product: str, *, in_graph: bool) -> Path:
    """MatMul over weights by column, or Gemm over weights by row; with TopK in the graph or without."""
    graph = GraphBuilder(folder)
    if product == "MatMul":
        logits = graph.node("MatMul", ["context", graph.tensor("columns", dense.weight.T)], "products")
    else:
        logits = graph.node("Gemm", ["context", graph.tensor("weight", dense.weight)], "products", transB=1)
    if dense.bias is not None:
        logits = graph.node("Add", [logits, graph.tensor("bias", dense.bias)], "biased")
    context = value("context", TensorProto.FLOAT, ["B", dense.dim])
    if not in_graph:
        graph.node("Identity", [logits], "logits")
        output = value("logits", TensorProto.FLOAT, ["B", dense.classes])
        return graph.save(f"{product}-logits", [context], [output])
    graph.nodes.append(topk_node(logits))
    inputs = [context, value("k", TensorProto.INT64, [1])]
    return graph.save(f"{product}-topk", inputs, [value("ids", TensorProto.INT64, ["B", "k"])])


def topk_node(logits: str) -> NodeProto:
    """ONNX TopK with its two outputs; ids are kept."""
    return helper.make_node("TopK", [logits, "k"], ["values", "ids"])
