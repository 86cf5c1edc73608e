"""Every spelling of the dense head in ONNX Runtime; the fastest is what others are compared with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnx import NodeProto, TensorProto, helper
from shortlist.plans.common.selection import rank_best
from shortlist.runtime.session import Graph
from shortlist_exporter.graphs.builder import GraphBuilder, make_value
from shortlist_exporter.graphs.dense import make_padding
from shortlist_exporter.inputs.sources import Dense

Contexts = npt.NDArray[np.float32]
TopK = Callable[[Contexts, int], npt.NDArray[np.int64]]


PRODUCTS = ("MatMul", "Gemm")
SELECTIONS = ("TopK", "threshold")
PACKINGS = ("packed", "as mapped")


def list_spellings() -> list[str]:
    """The names of all spellings, by which `open_spelling` takes them."""
    return [f"{a} + {b}, weights {c}" for a, b, c in itertools.product(PRODUCTS, SELECTIONS, PACKINGS)]


def open_spellings(dense: Dense, folder: Path, threads: int) -> dict[str, TopK]:
    """Name -> function (contexts [B, d], k) -> ids [B, k]. None of them computes a normaliser."""
    return {name: open_spelling(dense, folder, name, threads) for name in list_spellings()}


def open_spelling(dense: Dense, folder: Path, name: str, threads: int) -> TopK:
    """Open one of `list_spellings`; its graph and weights are written to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    operators, packing = name.split(", weights ")
    product, selection = operators.split(" + ")
    path = write_graph(dense, folder, product, in_graph=selection == "TopK")
    graph = Graph(path, "cpu", threads, prepack=packing == "packed")
    return select_in_graph(graph) if selection == "TopK" else select_by_threshold(graph)


def select_in_graph(graph: Graph) -> TopK:
    """Select the k best by the TopK operator in the graph."""
    return lambda contexts, k: graph(context=contexts, k=np.array([k], np.int64))[0]


def select_by_threshold(graph: Graph) -> TopK:
    """Select the k best by this project's own function, outside the graph."""
    return lambda contexts, k: np.stack([rank_best(row, k) for row in graph(context=contexts)[0]])


def write_graph(dense: Dense, folder: Path, product: str, *, in_graph: bool) -> Path:
    """MatMul over weights by column, or Gemm over weights by row; with TopK in the graph or without."""
    graph = GraphBuilder(folder)
    if product == "MatMul":
        logits = graph.node("MatMul", ["context", graph.tensor("columns", dense.weight.T)], "products")
    else:
        logits = graph.node("Gemm", ["context", graph.tensor("weight", dense.weight)], "products", transB=1)
    if dense.bias is not None:
        logits = graph.node("Add", [logits, graph.tensor("bias", dense.bias)], "biased")
    if dense.padded.size:
        logits = graph.node("Add", [logits, graph.tensor("padding", make_padding(dense))], "padded")
    context = make_value("context", TensorProto.FLOAT, ["B", dense.dim])
    if not in_graph:
        graph.node("Identity", [logits], "logits")
        output = make_value("logits", TensorProto.FLOAT, ["B", dense.classes])
        return graph.save(f"{product}-logits", [context], [output])
    graph.nodes.append(make_topk_node(logits))
    inputs = [context, make_value("k", TensorProto.INT64, [1])]
    return graph.save(f"{product}-topk", inputs, [make_value("ids", TensorProto.INT64, ["B", "k"])])


def make_topk_node(logits: str) -> NodeProto:
    """ONNX TopK with its two outputs; ids are kept."""
    return helper.make_node("TopK", [logits, "k"], ["values", "ids"])
