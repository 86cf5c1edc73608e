"""Graphs of plan `cascade`. Classes are in the order of index.safetensors, `order` [m]; positions count in it.

screen.onnx: `context` [B, d] -> `integers` [B, W] uint8, `row_scale` [B, 1], `reach` [B], `tail` [B].
common.onnx, rare.onnx: `integers`, `row_scale` -> `previews` [B, common], [B, m - common], in units of `row_scale`.
fused.onnx: screen and common by one call, with the outputs of both.
rescore.onnx: `context` [1, d], `positions` [n], `full_view` [1] -> `ids` [e], their exact `logits` [e], and `inside`
[1]: log of the sum of exp over all candidates, the best `full_view` exactly, the others by their int8 rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from shortlist_models.rescored.cascade import CascadeSoftmax
from shortlist_models.rescored.grouped import GroupedSoftmax

from shortlist_exporter.inputs.sources import Dense

from .builder import GraphBuilder, GraphFiles, add_row_products, make_value
from .dense import add_finish
from .quantized import UINT8_ZERO_POINT, add_levels, add_quantized_contexts

FLOAT, INT64, INT8, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT8, TensorProto.UINT8

ThreeStageSoftmax = CascadeSoftmax | GroupedSoftmax  # previews, int8 rows, exact rows, all by position


def write_graphs(folder: Path, dense: Dense, module: CascadeSoftmax) -> GraphFiles:
    """Write every graph of the module below `folder`."""
    blocks = {"common": (0, module.common), "rare": (module.common, len(module.order))}
    roles = {"screen": write_screen(folder, module), "fused": write_screen_and_common(folder, module)}
    for name, (start, end) in blocks.items():
        if start < end:
            roles[name] = write_block(folder, module, name, start, end)
    return GraphFiles(roles | {"rescore": write_rescore(folder, dense, module, add_int8_products)})


def write_screen(folder: Path, module: CascadeSoftmax) -> str:
    """Write screen.onnx: `context` [B, d] -> what `list_screen_outputs` names."""
    graph = GraphBuilder(folder)
    add_screen(graph, module)
    return graph.save("screen", [make_context_input(module)], list_screen_outputs(module)).name


def write_screen_and_common(folder: Path, module: CascadeSoftmax) -> str:
    """Write fused.onnx: screen.onnx and common.onnx in one call, with the `previews` [B, common] of the latter."""
    graph = GraphBuilder(folder)
    add_screen(graph, module)
    add_block(graph, module, "common", 0, module.common)
    outputs = [*list_screen_outputs(module), make_value("previews", FLOAT, ["B", module.common])]
    return graph.save("fused", [make_context_input(module)], outputs).name


def write_block(folder: Path, module: CascadeSoftmax, name: str, start: int, end: int) -> str:
    """Write a graph of the classes at positions `start` to `end` - 1: a projected context -> `previews` [B, n]."""
    graph = GraphBuilder(folder)
    add_block(graph, module, name, start, end)
    return graph.save(name, list_integer_values(module), [make_value("previews", FLOAT, ["B", end - start])]).name


def add_screen(graph: GraphBuilder, module: CascadeSoftmax) -> None:
    """Add projection, reach and tail by one product, and the projection in integers."""
    width = module.projection.shape[1]
    columns = [module.projection.numpy(), module.reach.vector.numpy()[:, None], module.tail.vector.numpy()[:, None]]
    graph.node("MatMul", ["context", graph.tensor("screen", np.concatenate(columns, axis=1))], "all")
    sizes = graph.tensor("sizes", np.array([width, 1, 1], np.int64))
    parts = ["projected", "reach_column", "tail_column"]
    graph.nodes.append(helper.make_node("Split", ["all", sizes], parts, axis=1))
    axis = graph.tensor("last", np.array([1], np.int64))
    for name, linear in (("reach", module.reach), ("tail", module.tail)):
        column = graph.node("Squeeze", [f"{name}_column", axis], f"{name}_product")
        graph.node("Add", [column, graph.tensor(f"{name}_offset", np.float32(linear.offset))], name)
    integers, row_scale = add_quantized_contexts(graph, "projected")
    assert (integers, row_scale) == ("integers", "row_scale")


def add_block(graph: GraphBuilder, module: CascadeSoftmax, name: str, start: int, end: int) -> None:
    """Add `previews` of the classes at positions `start` to `end`, from `integers` and `row_scale`."""
    weights = graph.tensor(f"{name}_preview", module.preview[start:end].numpy().T.astype(np.int8))
    by_class = graph.tensor(f"{name}_scale", module.scale[start:end, 0].numpy())
    sums = graph.node(
        "MatMulInteger", ["integers", weights, graph.tensor("zero_point", np.uint8(UINT8_ZERO_POINT))], "sums"
    )
    numbers = graph.node("Cast", [sums], "float_sums", to=FLOAT)
    if module.bias is None:
        graph.node("Mul", [numbers, by_class], "previews")
    else:
        bias = graph.tensor(f"{name}_bias", module.bias[start:end].numpy())
        in_units = graph.node("Div", [bias, "row_scale"], "bias_in_units")
        graph.node("Add", [graph.node("Mul", [numbers, by_class], "by_class"), in_units], "previews")


def write_rescore(
    folder: Path, dense: Dense, module: ThreeStageSoftmax, products: Callable[[GraphBuilder, ThreeStageSoftmax], str]
) -> str:
    """Write rescore.onnx; its exact rows are those of rows.onnx, one copy for both.

    products: adds the products with int8 rows at `positions`, [1, n], and returns their name.
    """
    graph = GraphBuilder(folder)
    real = Dense(dense.weight, dense.bias, dense.logit_scale, dense.soft_cap)  # positions leave padding out
    by_position = replace(real, bias=None if module.bias is None else module.bias.numpy())
    for name, shape in (("column", [-1, 1]), ("row", [1, -1]), ("flat", [-1])):
        graph.tensor(name, np.array(shape, np.int64))
    graph.node("Reshape", ["positions", "row"], "position_row")
    by_codes = add_finish(graph, by_position, products(graph, module), "position_row", "_by_position", "code_")
    graph.node("Reshape", [by_codes, "flat"], "code_logits")
    graph.nodes.append(helper.make_node("TopK", ["code_logits", "full_view"], ["kept_logits", "kept"], axis=0))
    kept_positions = graph.node("Gather", ["positions", "kept"], "kept_positions")
    graph.node("Gather", [graph.tensor("order", module.order.numpy()), kept_positions], "ids")
    graph.node("Reshape", ["ids", "row"], "id_row")
    exactly = add_finish(graph, real, add_exact_products(graph, real), "id_row")
    graph.node("Reshape", [exactly, "flat"], "logits")
    merged = graph.node("ScatterElements", ["code_logits", "kept", "logits"], "merged", axis=0)
    graph.node("ReduceLogSumExp", [merged, graph.tensor("first", np.array([0], np.int64))], "inside", keepdims=1)
    inputs = [
        make_value("context", FLOAT, [1, dense.dim]),
        make_value("positions", INT64, ["n"]),
        make_value("full_view", INT64, [1]),
    ]
    outputs = [make_value("ids", INT64, ["e"]), make_value("logits", FLOAT, ["e"]), make_value("inside", FLOAT, [1])]
    return graph.save("rescore", inputs, outputs).name


def add_exact_products(graph: GraphBuilder, dense: Dense) -> str:
    """Add the exact rows of `id_row` [1, e] times the context, [1, e]."""
    rows = graph.node("Gather", [graph.tensor("weight", dense.weight), "id_row"], "rows")
    return add_row_products(graph, rows, "context", "_exact")


def add_int8_products(graph: GraphBuilder, module: ThreeStageSoftmax) -> str:
    """Add the int8 rows at `positions` times the context in int8, [1, n]; equals `multiply_codes` without bias.

    The gathered rows are the left factor: a right one that is no constant would be packed anew for every query.
    Both are signed: with one unsigned factor, sums saturate in 16 bits on processors without VNNI.
    """
    codes = graph.tensor("codes", module.codes.numpy().astype(np.int8))
    levels_name, row_scale = add_levels(graph, "context")
    signed = graph.node("Cast", [graph.node("Reshape", [levels_name, "column"], "levels_column")], "signed", to=INT8)
    rows = graph.node("Gather", [codes, "positions"], "gathered")
    sums = graph.node("MatMulInteger", [rows, signed], "sums")
    numbers = graph.node("Reshape", [graph.node("Cast", [sums], "float_sums", to=FLOAT), "row"], "numbers")
    by_class = graph.node(
        "Gather", [graph.tensor("code_scale", module.code_scale[:, 0].numpy()), "positions"], "scales"
    )
    return graph.node("Mul", [graph.node("Mul", [numbers, by_class], "by_class"), row_scale], "code_products")


def make_context_input(module: ThreeStageSoftmax) -> onnx.ValueInfoProto:
    """The input `context` [B, d] float32."""
    return make_value("context", FLOAT, ["B", module.projection.shape[0]])


def list_integer_values(module: ThreeStageSoftmax) -> list[onnx.ValueInfoProto]:
    """`integers` and `row_scale`: the projected context in uint8, and its scale."""
    return [make_value("integers", UINT8, ["B", module.projection.shape[1]]), make_value("row_scale", FLOAT, ["B", 1])]


def list_screen_outputs(module: CascadeSoftmax) -> list[onnx.ValueInfoProto]:
    """The projected context, `reach` [B], what a rare class may reach, and `tail` [B], the log-sum of the rest."""
    return [*list_integer_values(module), make_value("reach", FLOAT, ["B"]), make_value("tail", FLOAT, ["B"])]
