"""Graphs of plan `grouped`. Classes are in the order of index.safetensors, `order` [m]; positions count in it.

fused.onnx: `context` [B, d] -> `scores` [B, G] of the groups, `tail` [B], and previews of all classes, in units of the
row: `coarse` [B, m] by the columns that groups are compared by, `previews` [B, m] by all.
rescore.onnx: as of plan `cascade`.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from onnx import TensorProto, helper
from shortlist.bundle.manifest import RawArray
from shortlist_models.rescored.centres import Centres
from shortlist_models.rescored.grouped import GroupedSoftmax
from shortlist_models.tail import TailTerms
from torch import Tensor

from shortlist_exporter.inputs.sources import Dense

from .builder import GraphBuilder, GraphFiles, is_inline, make_value
from .cascade import ThreeStageSoftmax, make_context_input, write_rescore
from .quantized import UINT8_ZERO_POINT, add_quantized_contexts

FLOAT = TensorProto.FLOAT


def write_graphs(folder: Path, dense: Dense, module: GroupedSoftmax) -> GraphFiles:
    """Every graph below `folder`, and what loops read in their place."""
    roles = {
        "fused": write_screen_and_previews(folder, module),
        "rescore": write_rescore(folder, dense, module, partial(add_code_products, row_mean=module.row_mean)),
    }
    return GraphFiles(roles, describe_arrays(dense, module))


def describe_arrays(dense: Dense, module: GroupedSoftmax) -> dict[str, RawArray]:
    """int8 rows [m, d] and exact rows [V, d]; nothing of layers so small that graphs hold them."""
    codes = module.codes.numpy()
    if is_inline(codes) or is_inline(dense.weight):
        return {}
    return {
        "search_codes": RawArray(file="codes.bin", dtype="uint8", shape=codes.shape),
        "search_weight": RawArray.describe("weight.bin", dense.weight),
    }


def shift_codes(module: ThreeStageSoftmax) -> npt.NDArray[np.uint8]:
    """The int8 rows [m, d] as uint8 around `UINT8_ZERO_POINT`."""
    codes: npt.NDArray[np.uint8] = module.codes.numpy().view(np.uint8) ^ np.uint8(UINT8_ZERO_POINT)
    return codes


def write_screen_and_previews(folder: Path, module: GroupedSoftmax) -> str:
    """Write fused.onnx: `context` [B, d] -> scores of the groups, a guess of the tail, coarse and whole previews."""
    graph = GraphBuilder(folder)
    add_screen(graph, module)
    add_previews(graph, module)
    shapes: dict[str, list[int | str]] = {
        "scores": ["B", len(module.groups.reach)],
        "tail": ["B"],
        "coarse": ["B", len(module.order)],
        "previews": ["B", len(module.order)],
    }
    values = [make_value(name, FLOAT, shape) for name, shape in shapes.items()]
    return graph.save("fused", [make_context_input(module)], values).name


def add_screen(graph: GraphBuilder, module: GroupedSoftmax) -> None:
    """Add projection and tail by one product, the projection in integers, and the scores of groups."""
    columns = [module.projection.numpy(), module.tail.vector.numpy()[:, None]]
    graph.node("MatMul", ["context", graph.tensor("screen", np.concatenate(columns, axis=1))], "all")
    sizes = graph.tensor("sizes", np.array([module.projection.shape[1], 1], np.int64))
    graph.nodes.append(helper.make_node("Split", ["all", sizes], ["projected", "tail_column"], axis=1))
    column = graph.node("Squeeze", ["tail_column", graph.tensor("last", np.array([1], np.int64))], "tail_product")
    offset = graph.tensor("tail_offset", np.float32(module.tail.offset))
    if len(module.tail_terms.offsets):
        column = graph.node("Add", [column, add_tail_terms(graph, module.tail_terms)], "tail_with_terms")
    graph.node("Add", [column, offset], "tail")
    integers, row_scale = add_quantized_contexts(graph, "projected")
    products = add_centre_products(graph, module.groups, integers)
    raised = graph.node("Add", [products, graph.tensor("raises", module.groups.raises.numpy())], "raised_products")
    scaled_products = graph.node("Mul", [raised, row_scale], "score_products")
    graph.node("Add", [scaled_products, graph.tensor("reach", module.groups.reach.numpy())], "scores")


def add_centre_products(graph: GraphBuilder, groups: Centres, integers: str) -> str:
    """Add the products [B, G] of the groups' centres with the first of the columns `integers` [B, W]."""
    products, start = [], 0
    for name, codes, scale in (("centre", groups.wide, groups.scale), ("fine_centre", groups.fine, groups.fine_scale)):
        if not codes.numel():
            continue
        stop = start + codes.shape[1]
        bounds = (("starts", start), ("ends", stop), ("columns", 1))
        some = [graph.tensor(f"{name}_{bound}", np.array([number], np.int64)) for bound, number in bounds]
        columns = graph.node("Slice", [integers, *some], f"{name}_compared")
        products.append(add_scaled_products(graph, columns, name, codes, scale))
        start = stop
    return sum_products(graph, products, "centre_products_of_all")


def add_tail_terms(graph: GraphBuilder, terms: TailTerms) -> str:
    """Add the log of the sum of the terms for `context` [B, d]; returns its name, [B]."""
    vectors = graph.tensor("tail_terms", terms.vectors.numpy().T)
    offsets = graph.tensor("tail_term_offsets", terms.offsets.numpy())
    sums = graph.node("Add", [graph.node("MatMul", ["context", vectors], "term_products"), offsets], "terms")
    last = graph.tensor("term_axis", np.array([1], np.int64))
    return graph.node("ReduceLogSumExp", [sums, last], "terms_sum", keepdims=0)


def add_previews(graph: GraphBuilder, module: GroupedSoftmax) -> None:
    """Add `coarse` and `previews` from `integers` and `row_scale`: of the int8 columns, those in 2 bits, and biases."""
    coarse_width = module.coarse_fine_width
    widths = [module.preview.shape[1], coarse_width, module.fine.shape[1] - coarse_width]
    fine = module.fine[:, :coarse_width], module.fine[:, coarse_width:]
    parts = (
        ("wide", module.preview, module.scale),
        ("fine", fine[0], module.fine_scale),
        ("rest", fine[1], module.fine_scale),
    )
    names = [f"{name}_integers" for name, *_ in parts]
    sizes = graph.tensor("column_sizes", np.array(widths, np.int64))
    graph.nodes.append(helper.make_node("Split", ["integers", sizes], names, axis=1))
    products = [
        add_scaled_products(graph, column, *part) for column, part in zip(names, parts, strict=True) if part[1].numel()
    ]
    coarse = sum_products(graph, products[: 1 + bool(coarse_width)], "coarse_products")
    coarse = graph.node("Add", [coarse, graph.tensor("preview_raise", module.preview_raise.numpy())], "raised")
    if module.bias is not None:
        in_units = graph.node("Div", [graph.tensor("preview_bias", module.bias.numpy()), "row_scale"], "bias_in_units")
        coarse = graph.node("Add", [coarse, in_units], "biased")
    graph.node("Identity", [coarse], "coarse")
    whole = sum_products(graph, [coarse, *products[1 + bool(coarse_width) :]], "whole_products")
    graph.node("Identity", [whole], "previews")


def sum_products(graph: GraphBuilder, products: list[str], name: str) -> str:
    """The sum of one or two arrays, called `name` where there are two."""
    return graph.node("Add", products, name) if len(products) > 1 else products[0]


def add_scaled_products(graph: GraphBuilder, integers: str, name: str, weights: Tensor, scale: Tensor) -> str:
    """Add `integers` [B, C] uint8 times `weights` [m, C], whole numbers -127..127, times `scale` [m, 1].

    Float32 [B, m].
    """
    columns, zero_point = (
        graph.tensor(name, weights.to(torch.int8).numpy().T),
        graph.tensor("zero_point", np.uint8(UINT8_ZERO_POINT)),
    )
    sums = graph.node("MatMulInteger", [integers, columns, zero_point], f"{name}_sums")
    numbers = graph.node("Cast", [sums], f"{name}_numbers", to=FLOAT)
    return graph.node("Mul", [numbers, graph.tensor(f"{name}_scale", scale[:, 0].numpy())], f"{name}_products")


def add_code_products(graph: GraphBuilder, module: ThreeStageSoftmax, row_mean: Tensor) -> str:
    """Add the int8 rows at `positions` times the context in float32, [1, n]; loops take it in two digits of int8.

    row_mean: [d], which these rows lack.
    """
    codes = graph.tensor("codes", shift_codes(module))
    rows = graph.node("Gather", [codes, "positions"], "gathered")
    one, zero_point = graph.tensor("one", np.float32(1)), graph.tensor("zero_point", np.uint8(UINT8_ZERO_POINT))
    numbers = graph.node("DequantizeLinear", [rows, one, zero_point], "whole_numbers")
    scale = graph.node("Gather", [graph.tensor("code_scale", module.code_scale.numpy()), "positions"], "scales")
    rows = graph.node("Mul", [numbers, scale], "code_rows")  # before the product, which would overflow
    products = graph.node("MatMul", [rows, graph.node("Reshape", ["context", "column"], "code_column")], "by_codes")
    mean = graph.tensor("row_mean", row_mean.numpy()[:, None])
    products = graph.node("Add", [products, graph.node("MatMul", ["context", mean], "common")], "whole_by_codes")
    return graph.node("Reshape", [products, "row"], "code_products")
