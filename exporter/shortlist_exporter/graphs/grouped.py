"""Graphs of plan `grouped`. Classes are in the order of index.safetensors, `order` [m]; positions count in it.

screen.onnx: `context` [B, d] -> `integers` [B, W] uint8, `row_scale` [B, 1], `scores` [B, G] of the groups,
`block_scores` [B, n] of the blocks, `tail` [B].
previews.onnx: `integers`, `row_scale` -> `previews` [B, m] of all classes, in units of `row_scale`.
fused.onnx: both by one call: `scores`, `block_scores`, `tail`, `previews`.
rescore.onnx: as of plan `cascade`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper
from shortlist.bundle.manifest import RawArray
from shortlist_models.rescored.grouped import GroupedSoftmax
from torch import Tensor

from shortlist_exporter.inputs.sources import Dense

from .builder import GraphBuilder, GraphFiles, is_inline, make_value
from .cascade import ThreeStageSoftmax, list_integer_values, make_context_input, write_rescore
from .quantized import UINT8_ZERO_POINT, add_quantized_contexts

FLOAT = TensorProto.FLOAT


def write_graphs(folder: Path, dense: Dense, module: GroupedSoftmax) -> GraphFiles:
    """Every graph below `folder`, and what loops read in their place."""
    roles = {
        "screen": write_screen(folder, module),
        "previews": write_previews(folder, module),
        "fused": write_screen_and_previews(folder, module),
        "rescore": write_rescore(folder, dense, module, add_code_products),
    }
    return GraphFiles(roles, describe_arrays(dense, module))


def describe_arrays(dense: Dense, module: GroupedSoftmax) -> dict[str, RawArray]:
    """int8 rows [m, d] and exact rows [V, d]; nothing of layers so small that graphs hold them."""
    codes = shift_codes(module)
    if is_inline(codes) or is_inline(dense.weight):
        return {}
    return {
        "search_codes": RawArray.describe("codes.bin", codes),
        "search_weight": RawArray.describe("weight.bin", dense.weight),
    }


def shift_codes(module: ThreeStageSoftmax) -> npt.NDArray[np.uint8]:
    """The int8 rows [m, d] as uint8 around `UINT8_ZERO_POINT`."""
    codes: npt.NDArray[np.uint8] = (module.codes.numpy() + UINT8_ZERO_POINT).astype(np.uint8)
    return codes


def write_screen(folder: Path, module: GroupedSoftmax) -> str:
    graph = GraphBuilder(folder)
    add_screen(graph, module)
    outputs = [*list_integer_values(module), *list_screen_outputs(module)]
    return graph.save("screen", [make_context_input(module)], outputs).name


def write_previews(folder: Path, module: GroupedSoftmax) -> str:
    graph = GraphBuilder(folder)
    add_previews(graph, module)
    return graph.save("previews", list_integer_values(module), [make_previews_output(module)]).name


def write_screen_and_previews(folder: Path, module: GroupedSoftmax) -> str:
    graph = GraphBuilder(folder)
    add_screen(graph, module)
    add_previews(graph, module)
    return graph.save(
        "fused", [make_context_input(module)], [*list_screen_outputs(module), make_previews_output(module)]
    ).name


def add_screen(graph: GraphBuilder, module: GroupedSoftmax) -> None:
    """Add projection and tail by one product, the projection in integers, and the scores of groups and blocks."""
    columns = [module.projection.numpy(), module.tail.vector.numpy()[:, None]]
    graph.node("MatMul", ["context", graph.tensor("screen", np.concatenate(columns, axis=1))], "all")
    sizes = graph.tensor("sizes", np.array([module.projection.shape[1], 1], np.int64))
    graph.nodes.append(helper.make_node("Split", ["all", sizes], ["projected", "tail_column"], axis=1))
    column = graph.node("Squeeze", ["tail_column", graph.tensor("last", np.array([1], np.int64))], "tail_product")
    graph.node("Add", [column, graph.tensor("tail_offset", np.float32(module.tail.offset))], "tail")
    integers, row_scale = add_quantized_contexts(graph, "projected")
    bounds = (("starts", 0), ("ends", module.groups.codes.shape[1]), ("columns", 1))
    first = [graph.tensor(f"centre_{name}", np.array([number], np.int64)) for name, number in bounds]
    first_columns = graph.node("Slice", [integers, *first], "compared")
    for name, centres in (("scores", module.groups), ("block_scores", module.blocks)):
        products = add_scaled_products(graph, first_columns, f"{name}_centre", centres.codes, centres.scale)
        scaled_products = graph.node("Mul", [products, row_scale], f"{name}_products")
        graph.node("Add", [scaled_products, graph.tensor(f"{name}_reach", centres.reach.numpy())], name)


def add_previews(graph: GraphBuilder, module: GroupedSoftmax) -> None:
    """Add `previews` from `integers` and `row_scale`: products of the int8 columns, and of those in 2 bits."""
    wide, fine = module.preview.shape[1], module.fine.shape[1]
    if not fine:
        sums = add_scaled_products(graph, "integers", "preview", module.preview, module.scale)
    else:
        sizes = graph.tensor("column_sizes", np.array([wide, fine], np.int64))
        graph.nodes.append(helper.make_node("Split", ["integers", sizes], ["first", "others"], axis=1))
        parts = (
            ("first", "preview", module.preview, module.scale),
            ("others", "fine", module.fine, module.fine_scale),
        )
        sums = graph.node("Add", [add_scaled_products(graph, *part) for part in parts], "products")
    if module.bias is not None:
        in_units = graph.node("Div", [graph.tensor("preview_bias", module.bias.numpy()), "row_scale"], "bias_in_units")
        sums = graph.node("Add", [sums, in_units], "biased")
    graph.node("Identity", [sums], "previews")


def add_scaled_products(graph: GraphBuilder, integers: str, name: str, weights: Tensor, scale: Tensor) -> str:
    """Add `integers` [B, C] uint8 times `weights` [m, C], whole numbers -127..127, times `scale` [m, 1].

    Float32 [B, m].
    """
    columns, zero_point = (
        graph.tensor(name, weights.numpy().T.astype(np.int8)),
        graph.tensor("zero_point", np.uint8(UINT8_ZERO_POINT)),
    )
    sums = graph.node("MatMulInteger", [integers, columns, zero_point], f"{name}_sums")
    numbers = graph.node("Cast", [sums], f"{name}_numbers", to=FLOAT)
    return graph.node("Mul", [numbers, graph.tensor(f"{name}_scale", scale[:, 0].numpy())], f"{name}_products")


def add_code_products(graph: GraphBuilder, module: ThreeStageSoftmax) -> str:
    """Add the int8 rows at `positions` times the context in float32, [1, n]; loops take it in two digits of int8."""
    codes = graph.tensor("codes", shift_codes(module))
    rows = graph.node("Gather", [codes, "positions"], "gathered")
    one, zero_point = graph.tensor("one", np.float32(1)), graph.tensor("zero_point", np.uint8(UINT8_ZERO_POINT))
    numbers = graph.node("DequantizeLinear", [rows, one, zero_point], "whole_numbers")
    scale = graph.node("Gather", [graph.tensor("code_scale", module.code_scale.numpy()), "positions"], "scales")
    rows = graph.node("Mul", [numbers, scale], "code_rows")  # before the product, which would overflow
    products = graph.node("MatMul", [rows, graph.node("Reshape", ["context", "column"], "code_column")], "by_codes")
    return graph.node("Reshape", [products, "row"], "code_products")


def make_previews_output(module: GroupedSoftmax) -> onnx.ValueInfoProto:
    return make_value("previews", FLOAT, ["B", len(module.order)])


def list_screen_outputs(module: GroupedSoftmax) -> list[onnx.ValueInfoProto]:
    """Scores of groups and blocks, and the tail."""
    scores = make_value("scores", FLOAT, ["B", len(module.groups.reach)])
    return [
        scores,
        make_value("block_scores", FLOAT, ["B", len(module.blocks.reach)]),
        make_value("tail", FLOAT, ["B"]),
    ]
