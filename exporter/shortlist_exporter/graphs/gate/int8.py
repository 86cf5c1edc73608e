"""Logits of one expert whose rows are int8, for experts/fused.onnx: a quarter of the bytes of float32.

The product is that of the rounded rows, to float32's own rounding: the context is written in three digits of 7 bits,
and sums of whole numbers are exact. Three rows of a product cost what one costs, and digits of 7 bits saturate on no
processor (see `graphs.bounds`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from onnx import TensorProto
from shortlist_models.ds.softmax import DSSoftmax
from shortlist_models.svd import quantize_rows

from shortlist_exporter.graphs.bounds import DIGIT_LEVELS, SECOND_DIGIT_FACTOR, UNDERFLOW_ALLOWANCE
from shortlist_exporter.graphs.builder import GraphBuilder
from shortlist_exporter.graphs.screen import add_slice_ends

CONTEXT_DIGITS = 3
DIGIT_FACTORS = np.float32(SECOND_DIGIT_FACTOR) ** np.arange(CONTEXT_DIGITS, dtype=np.float32)
PEAK_IN_UNITS = np.float32(DIGIT_LEVELS) * DIGIT_FACTORS  # the context's largest number, in units of each digit


@torch.no_grad()
def round_rows(module: DSSoftmax) -> DSSoftmax:
    """A copy of the module with every row of its weights rounded to int8, biases as they are."""
    integers, scale = quantize_rows(module.weight)
    state = module.state_dict() | {"weight": integers * scale}
    return DSSoftmax.from_state(state, module.classes, replace(module.options))


def add_integer_logits(graph: GraphBuilder, module: DSSoftmax) -> None:
    """Add `logits` from `scaled_context`, `scale` and `cluster`; the module's rows are those of `round_rows`."""
    integers, scales = (part.numpy() for part in quantize_rows(module.weight.detach()))
    offsets = module.offsets.numpy()
    ends = add_slice_ends(graph, "class", offsets)
    row_scale, bias = (
        graph.node("Slice", [graph.tensor(f"{name}s", values), *ends], name)
        for name, values in (("row_scale", scales[:, 0]), ("bias", module.bias.detach().numpy()))
    )
    digits, units = add_context_digits(graph, "scaled_context")
    zero = graph.tensor("zero_digit", np.uint8(DIGIT_LEVELS + 1))
    sums = graph.node(
        "MatMulInteger", [digits, add_sliced_columns(graph, integers.astype(np.int8), offsets), zero], "sums"
    )
    numbers = graph.node("Cast", [sums], "float_sums", to=TensorProto.FLOAT)
    products = graph.node("Mul", [graph.node("MatMul", [units, numbers], "steps"), row_scale], "products")
    graph.node("Add", [products, graph.node("Mul", [bias, "scale"], "scaled_bias")], "logits")


def add_sliced_columns(graph: GraphBuilder, integers: npt.NDArray[np.int8], offsets: npt.NDArray[np.int64]) -> str:
    """Add the rows of the chosen expert of `integers` [N, d], by column."""
    dim = integers.shape[1]
    every = np.concatenate([np.ascontiguousarray(part.T).reshape(-1) for part in np.split(integers, offsets[1:-1])])
    flat = graph.node(
        "Slice", [graph.tensor("integers", every), *add_slice_ends(graph, "weight", offsets * dim)], "flat"
    )
    return graph.node("Reshape", [flat, graph.tensor("shape", np.array([dim, -1], np.int64))], "columns")


def add_context_digits(graph: GraphBuilder, context: str) -> tuple[str, str]:
    """Add `context` [1, d] as digits [3, d] uint8 around 64, and the value of a unit of each [1, 3]."""
    one = graph.tensor("one", np.array([1], np.int64))
    peak = graph.node("ReduceMax", [graph.node("Abs", [context], "sizes"), one], "peak", keepdims=1)
    safe = graph.node("Max", [peak, graph.tensor("least", np.float32(UNDERFLOW_ALLOWANCE))], "safe_peak")
    in_peak = graph.node("Div", [graph.tensor("units_in_peak", PEAK_IN_UNITS[:, None]), safe], "per_number")
    whole = graph.node("Round", [graph.node("Mul", [context, in_peak], "in_units")], "whole")
    carry = np.eye(CONTEXT_DIGITS, dtype=np.float32) - SECOND_DIGIT_FACTOR * np.eye(
        CONTEXT_DIGITS, k=-1, dtype=np.float32
    )
    middle = graph.tensor("middle", np.array([DIGIT_LEVELS + 1.5], np.float32))  # Cast drops what is behind the point
    digits = graph.node("Gemm", [graph.tensor("carried", carry), whole, middle], "shifted")
    units = graph.node("Mul", [safe, graph.tensor("peak_in_units", 1 / PEAK_IN_UNITS[None])], "units")
    return graph.node("Cast", [digits], "digits", to=TensorProto.UINT8), units
