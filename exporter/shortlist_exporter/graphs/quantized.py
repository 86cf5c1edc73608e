"""Products in int8, as a part of a graph."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from onnx import TensorProto

from .builder import GraphBuilder

UINT8_ZERO_POINT = 128  # int8 products want one unsigned side: contexts are stored as round(p / scale) + 128
LEAST_PEAK = np.float32(1e-30)  # a zero context must not divide by zero, nor what is divided by its scale overflow

FloatArray = npt.NDArray[np.float32]


def add_quantized_products(graph: GraphBuilder, projected: str, preview: FloatArray, scale: FloatArray) -> str:
    """Add products [B, n] of `projected` [B, W] in int8; each context has its own scale, so others do not change it.

    preview: [n, W] integers -127..127. scale: [n, 1] or [n], of each class.
    """
    weights = graph.tensor("preview", preview.T.astype(np.int8))
    return add_scaled_products(graph, projected, weights, scale)


def add_scaled_products(graph: GraphBuilder, projected: str, weights: str, scale: FloatArray, suffix: str = "") -> str:
    """As `add_quantized_products`, for a tensor `weights` [W, n] int8 that the graph has.

    suffix: of the files' names, where several graphs share a folder.
    """
    zero_point = graph.tensor("zero_point", np.uint8(UINT8_ZERO_POINT))
    integers, row_scale = add_quantized_contexts(graph, projected)
    sums = graph.node("MatMulInteger", [integers, weights, zero_point], "sums")
    by_class = graph.tensor(f"class_scale{suffix}", scale.reshape(-1))
    scaled_sums = graph.node(
        "Mul", [graph.node("Cast", [sums], "float_sums", to=TensorProto.FLOAT), by_class], "by_class"
    )
    return graph.node("Mul", [scaled_sums, row_scale], "products")


def add_quantized_contexts(graph: GraphBuilder, projected: str) -> tuple[str, str]:
    """Add `projected` [B, W] as uint8 around 128, and its scale [B, 1]; equals `quantize_rows` of the torch module."""
    levels_name, scale = add_levels(graph, projected)
    shifted = graph.node("Add", [levels_name, graph.tensor("shift", np.float32(UINT8_ZERO_POINT))], "shifted")
    return graph.node("Cast", [shifted], "integers", to=TensorProto.UINT8), scale


def add_levels(graph: GraphBuilder, projected: str) -> tuple[str, str]:
    """Add `projected` [B, W] as whole numbers -127..127 in float32, and its scale [B, 1]."""
    axis = graph.tensor("axis", np.array([1], np.int64))
    peak = graph.node("ReduceMax", [graph.node("Abs", [projected], "size"), axis], "peak", keepdims=1)
    tiny = graph.tensor("tiny", LEAST_PEAK)
    scale = graph.node(
        "Div", [graph.node("Max", [peak, tiny], "safe_peak"), graph.tensor("levels", np.float32(127))], "row_scale"
    )
    return graph.node("Round", [graph.node("Div", [projected, scale], "in_levels")], "rounded"), scale
