"""Graphs of plan `grouped`. Classes are in the order of index.safetensors, `order` [m]; positions count in it.

screen.onnx: `context` [B, d] -> `integers` [B, W] uint8, `row_scale` [B, 1], `scores` [B, G] of the groups, `tail` [B].
previews.onnx: `integers`, `row_scale` -> `previews` [B, m] of all classes, in units of `row_scale`.
fused.onnx: both by one call: `scores`, `tail`, `previews`.
rescore.onnx: as of plan `cascade`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper
from shortlist_models.grouped import GroupedSoftmax

from .cascade_graphs import block, context_of, write_block, write_rescore
from .graphs import GraphBuilder, value
from .quantized import ZERO_POINT, quantized_contexts
from .sources import Dense

FLOAT = TensorProto.FLOAT


def write_graphs(folder: Path, dense: Dense, module: GroupedSoftmax) -> dict[str, str]:
    """Every graph below `folder`; role -> file."""
    classes = len(module.order)
    return {
        "screen": write_screen(folder, module),
        "previews": write_block(folder, module, "previews", 0, classes),
        "fused": write_fused(folder, module),
        "rescore": write_rescore(folder, dense, module),
    }


def write_screen(folder: Path, module: GroupedSoftmax) -> str:
    """screen.onnx."""
    graph = GraphBuilder(folder)
    screen(graph, module)
    integers = [
        value("integers", TensorProto.UINT8, ["B", module.projection.shape[1]]),
        value("row_scale", FLOAT, ["B", 1]),
    ]
    return graph.save("screen", [context_of(module)], [*integers, *screen_outputs(module)]).name


def write_fused(folder: Path, module: GroupedSoftmax) -> str:
    """fused.onnx."""
    graph = GraphBuilder(folder)
    screen(graph, module)
    block(graph, module, "previews", 0, len(module.order))
    outputs = [*screen_outputs(module), value("previews", FLOAT, ["B", len(module.order)])]
    return graph.save("fused", [context_of(module)], outputs).name


def screen(graph: GraphBuilder, module: GroupedSoftmax) -> None:
    """Projection and tail by one product; the projection in integers; the scores of groups."""
    columns = [module.projection.numpy(), module.tail.vector.numpy()[:, None]]
    graph.node("MatMul", ["context", graph.tensor("screen", np.concatenate(columns, axis=1))], "all")
    sizes = graph.tensor("sizes", np.array([module.projection.shape[1], 1], np.int64))
    graph.nodes.append(helper.make_node("Split", ["all", sizes], ["projected", "tail_column"], axis=1))
    column = graph.node("Squeeze", ["tail_column", graph.tensor("last", np.array([1], np.int64))], "tail_product")
    graph.node("Add", [column, graph.tensor("tail_offset", np.float32(module.tail.offset))], "tail")
    integers, row_scale = quantized_contexts(graph, "projected")
    centres = graph.tensor("centres", module.centre.numpy().T.astype(np.int8))
    zero_point = graph.tensor("zero_point", np.uint8(ZERO_POINT))
    sums = graph.node("MatMulInteger", [integers, centres, zero_point], "centre_sums")
    numbers = graph.node("Cast", [sums], "centre_numbers", to=FLOAT)
    scaled = graph.node("Mul", [numbers, graph.tensor("centre_scale", module.centre_scale[:, 0].numpy())], "by_group")
    products = graph.node("Mul", [scaled, row_scale], "centre_products")
    graph.node("Add", [products, graph.tensor("reach", module.reach.numpy())], "scores")


def screen_outputs(module: GroupedSoftmax) -> list[onnx.ValueInfoProto]:
    """What a row's groups are chosen by, and its tail."""
    return [value("scores", FLOAT, ["B", len(module.reach)]), value("tail", FLOAT, ["B"])]
