"""The graphs that every bundle shares: dense.onnx (all classes) and rows.onnx (given classes), exactly scored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from onnx import TensorProto
from shortlist.bundle.manifest import RawArray

from shortlist_exporter.inputs.sources import Dense

from .builder import GraphBuilder, GraphFiles, add_row_products, is_inline, make_value


def add_finish(
    graph: GraphBuilder, dense: Dense, products: str, ids: str | None = None, suffix: str = "", stage: str = ""
) -> str:
    """Add bias, logit scale, soft-cap and padding to `products` [B, V], or [B, n] of classes `ids`; returns a name.

    suffix: of the bias' file, where layers of several graphs share a folder. stage: before the names of nodes, where
    one graph does this twice.
    """
    logits = products
    if dense.bias is not None:
        bias = graph.tensor(f"bias{suffix}", dense.bias)
        added = bias if ids is None else add_gather(graph, bias, ids, stage)
        logits = graph.node("Add", [logits, added], f"{stage}biased")
    if dense.logit_scale != 1.0:
        scale = graph.tensor("logit_scale", np.float32(dense.logit_scale))
        logits = graph.node("Mul", [logits, scale], f"{stage}scaled")
    if dense.soft_cap is not None:
        cap = graph.tensor("soft_cap", np.float32(dense.soft_cap))
        bounded = graph.node("Tanh", [graph.node("Div", [logits, cap], f"{stage}over_cap")], f"{stage}bounded")
        logits = graph.node("Mul", [bounded, cap], f"{stage}capped")
    if dense.padded.size:
        padding = graph.tensor("padding", make_padding(dense))
        added = padding if ids is None else add_gather(graph, padding, ids, stage)
        logits = graph.node("Add", [logits, added], f"{stage}padded")
    return logits


def make_padding(dense: Dense) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """[V]: -inf at rows that are no class, else 0."""
    padding = np.zeros(dense.classes, np.float32)
    padding[dense.padded] = -np.inf
    return padding


def add_gather(graph: GraphBuilder, tensor: str, ids: str, stage: str = "") -> str:
    """Add a gather of `tensor` [V] at `ids` [B, n]; returns its name."""
    return graph.node("Gather", [tensor, ids], f"{stage}{tensor}_of_ids")


def name_logits(graph: GraphBuilder, result: str) -> None:
    """Give the graph's result the name `logits`."""
    graph.node("Identity", [result], "logits")


def write_dense(folder: Path, dense: Dense) -> GraphFiles:
    """dense.onnx: `context` [B, d] -> `logits` [B, V]; weights by column, which products over one row need."""
    graph = GraphBuilder(folder)
    columns = graph.tensor("columns", dense.weight.T)
    name_logits(graph, add_finish(graph, dense, graph.node("MatMul", ["context", columns], "products")))
    path = graph.save(
        "dense",
        [make_value("context", TensorProto.FLOAT, ["B", dense.dim])],
        [make_value("logits", TensorProto.FLOAT, ["B", dense.classes])],
    )
    return GraphFiles({"dense": path.name})


def write_rows(folder: Path, dense: Dense) -> GraphFiles:
    """rows.onnx: `context` [B, d], `ids` [B, n] -> `logits` [B, n]; weights by row, which a gather needs."""
    graph = GraphBuilder(folder)
    rows = graph.node("Gather", [graph.tensor("weight", dense.weight), "ids"], "rows")
    name_logits(graph, add_finish(graph, dense, add_row_products(graph, rows, "context"), "ids"))
    path = graph.save(
        "rows",
        [make_value("context", TensorProto.FLOAT, ["B", dense.dim]), make_value("ids", TensorProto.INT64, ["B", "n"])],
        [make_value("logits", TensorProto.FLOAT, ["B", "n"])],
    )
    return GraphFiles({"rows": path.name}, describe_arrays(dense))


def describe_arrays(dense: Dense) -> dict[str, RawArray]:
    """What loops read in the place of rows.onnx; nothing of layers so small that graphs hold their biases."""
    padding = make_padding(dense)
    if is_inline(padding):
        return {}
    arrays = {"exact_weight": RawArray.describe("weight.bin", dense.weight)}
    if dense.bias is not None:
        arrays["exact_bias"] = RawArray.describe("bias.bin", dense.bias)
    if dense.padded.size:
        arrays["exact_padding"] = RawArray.describe("padding.bin", padding)
    return arrays
