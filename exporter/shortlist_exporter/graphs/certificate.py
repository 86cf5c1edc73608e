"""What proves exact answers of a layer, on disk: bounds.onnx, and arrays for the loops that stand in its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnx import TensorProto
from safetensors.numpy import save
from shortlist.bundle.manifest import RawArray
from shortlist.bundle.reader import CERTIFICATE_FILE, GRAPHS_FOLDER

from shortlist_exporter.inputs.sources import Dense

from .balanced_basis import count_blocks
from .bounds import (
    DIGIT_LEVELS,
    SECOND_DIGIT_FACTOR,
    UNDERFLOW_ALLOWANCE,
    Bounds,
    Floats,
    compute_bounds,
    compute_spread_factors,
)
from .builder import GraphBuilder, GraphFiles, make_value
from .dense import add_finish

MIN_WEIGHTS = 4 << 20  # V x d; a smaller layer is answered by dense in about the time that the bounds take
ZERO_POINT = 128  # rows are stored as unsigned bytes, this much larger
FOUR_BITS_FILE = "certificate_four_bits.bin"


def is_worthwhile(dense: Dense) -> bool:
    """Whether the layer is so large that bounds may be faster than dense."""
    return dense.weight.size >= MIN_WEIGHTS


def write_certificate(folder: Path, dense: Dense, contexts: Floats, seed: int) -> GraphFiles:
    """All that certified answers need below `folder`; nothing where it cannot help, or float32 cannot hold it."""
    if not is_worthwhile(dense) or not len(contexts):
        return GraphFiles()
    with np.errstate(over="ignore", invalid="ignore"):
        bounds = compute_bounds(dense, contexts, seed)
    if not bounds.finite:
        return GraphFiles()
    constant = bounds.constant.copy()
    constant[dense.padded] = -np.inf
    arrays = {
        "norms": bounds.norms,
        "scale": bounds.scale,
        "floor": np.array([bounds.floor], np.float32),
        "mean": bounds.mean,
        "common": bounds.common,
        "factors": compute_spread_factors(bounds),
        "constant": constant,
        "four_bit_scale": bounds.four_bits.scale,
        "four_bit_factors": bounds.four_bits.factors,
        "error_directions": bounds.four_bits.error_directions,
        "level_directions": bounds.four_bits.level_directions,
    }
    (folder / CERTIFICATE_FILE).write_bytes(save(arrays))
    return write_bounds(folder / GRAPHS_FOLDER, dense, bounds).below(GRAPHS_FOLDER)


def write_bounds(folder: Path, dense: Dense, bounds: Bounds) -> GraphFiles:
    """bounds.onnx: `context` [B, d] -> `estimate` [B, V] and `spread` [B, 1], float32; see the module's docstring."""
    graph = GraphBuilder(folder)
    centred = graph.node("Sub", ["context", graph.tensor("certificate_mean", bounds.mean)], "centred")
    transformed = add_basis_change(graph, centred, bounds.change)
    digits, steps, residual = add_context_digits(graph, transformed)
    columns = graph.node("Transpose", [graph.file("certificate_rows", shift_integers(bounds))], "columns", perm=[1, 0])
    zeros = [graph.tensor("zero_digit", np.uint8(DIGIT_LEVELS + 1)), graph.tensor("zero_weight", np.uint8(ZERO_POINT))]
    integers = graph.node("MatMulInteger", [digits, columns, *zeros], "sums")
    sums = graph.node("Cast", [integers], "s", to=TensorProto.FLOAT)
    products = graph.node("Squeeze", [graph.node("MatMul", [steps, sums], "product_row"), "middle_axis"], "products")
    in_logits = graph.node("Mul", [products, graph.tensor("certificate_scale", bounds.scale)], "in_logits")
    constant = graph.tensor("certificate_constant", bounds.constant)
    constants = graph.node("Add", [constant, add_offset(graph, bounds, centred)], "constants")
    logits = graph.node("Add", [in_logits, constants], "logits_before")
    plain = replace(dense, bias=None, logit_scale=1.0)  # both are in the rows and the constant
    graph.node("Identity", [add_finish(graph, plain, logits)], "estimate")
    add_spread(graph, bounds, centred, transformed, residual)
    path = graph.save(
        "bounds",
        [make_value("context", TensorProto.FLOAT, ["B", dense.dim])],
        [
            make_value("estimate", TensorProto.FLOAT, ["B", dense.classes]),
            make_value("spread", TensorProto.FLOAT, ["B", 1]),
        ],
    )
    bounds.four_bits.codes.tofile(folder / FOUR_BITS_FILE)
    return GraphFiles({"bounds": path.name}, describe_arrays(bounds))


def describe_arrays(bounds: Bounds) -> dict[str, RawArray]:
    """What loops read in the place of bounds.onnx: rows of int8 and of 4 bits, and the change of basis in blocks."""
    blocks, dim = count_blocks(len(bounds.change)), len(bounds.change)
    return {
        "bounds_rows": RawArray(file="certificate_rows.bin", dtype="uint8", shape=bounds.integers.shape),
        "bounds_four_bits": RawArray.describe(FOUR_BITS_FILE, bounds.four_bits.codes),
        "bounds_change": RawArray(file="certificate_change.bin", dtype="float32", shape=(blocks, blocks, dim)),
    }


def shift_integers(bounds: Bounds) -> npt.NDArray[np.uint8]:
    """The integers as unsigned bytes [V, d], `ZERO_POINT` larger."""
    return (bounds.integers.view(np.uint8) ^ ZERO_POINT).astype(np.uint8)


def add_offset(graph: GraphBuilder, bounds: Bounds, centred: str) -> str:
    """Add the product [B, 1] of what rows have in common with `centred`, summed in float64; returns its name."""
    column = graph.tensor("certificate_common", bounds.common.astype(np.float64)[:, None])
    wide = graph.node("Cast", [centred], "wide_context", to=TensorProto.DOUBLE)
    return graph.node("Cast", [graph.node("MatMul", [wide, column], "wide_offset")], "offset", to=TensorProto.FLOAT)


def add_basis_change(graph: GraphBuilder, centred: str, change: Floats) -> str:
    """Add the product y P, [B, d], in blocks: each a product of `count_blocks(d)` terms, then their sum."""
    dim = len(change)
    blocks = count_blocks(dim)
    rows = np.zeros((blocks * blocks, dim), np.float32)
    rows[:dim] = change
    pads = graph.tensor("pads", np.array([0, 0, 0, blocks * blocks - dim], np.int64))
    padded = graph.node("Pad", [centred, pads], "padded_context") if blocks * blocks > dim else centred
    shape = graph.tensor("block_shape", np.array([0, blocks, 1, blocks], np.int64))
    weights = graph.file("certificate_change", rows.reshape(blocks, blocks, dim))
    parts = graph.node("MatMul", [graph.node("Reshape", [padded, shape], "blocks"), weights], "parts")
    axes = graph.tensor("block_axes", np.array([1, 2], np.int64))
    return graph.node("ReduceSum", [parts, axes], "turned", keepdims=0)


def add_context_digits(graph: GraphBuilder, transformed: str) -> tuple[str, str, str]:
    """Add digits [B, 2, d] uint8, their steps [B, 1, 2], and the residual [B, d]; returns their names."""
    axis = graph.tensor("middle_axis", np.array([1], np.int64))
    peak = graph.node("ReduceMax", [graph.node("Abs", [transformed], "sizes"), axis], "peak", keepdims=1)
    safe = graph.node("Max", [peak, graph.tensor("least", np.float32(UNDERFLOW_ALLOWANCE))], "safe_peak")
    step = graph.node("Div", [safe, graph.tensor("digit", np.float32(DIGIT_LEVELS))], "step")
    fine = graph.node("Div", [step, graph.tensor("second", np.float32(SECOND_DIGIT_FACTOR))], "fine_step")
    first, rest = add_digit(graph, transformed, step, "first")
    second, residual = add_digit(graph, rest, fine, "second")
    rows = [graph.node("Unsqueeze", [name, axis], f"{name}_row") for name in (first, second)]
    pairs = graph.node("Concat", rows, "pairs", axis=1)
    shifted = graph.node("Add", [pairs, graph.tensor("shift", np.float32(DIGIT_LEVELS + 1))], "shifted")
    digits = graph.node("Cast", [shifted], "digits", to=TensorProto.UINT8)
    both = graph.node("Concat", [step, fine], "both_steps", axis=1)
    return digits, graph.node("Unsqueeze", [both, axis], "steps"), residual


def add_digit(graph: GraphBuilder, numbers: str, step: str, name: str) -> tuple[str, str]:
    """Add `numbers` [B, d] in whole steps [B, 1], and the remainder; returns both names."""
    whole = graph.node("Round", [graph.node("Div", [numbers, step], f"{name}_in_steps")], f"{name}_digit")
    whole_steps = graph.node("Mul", [whole, step], f"{name}_taken")
    return whole, graph.node("Sub", [numbers, whole_steps], f"{name}_left")


def add_spread(graph: GraphBuilder, bounds: Bounds, centred: str, transformed: str, residual: str) -> None:
    """Add the output `spread` [B, 1] of the module's docstring."""
    norms = [
        graph.node("ReduceL2", [name, "middle_axis"], f"{name}_norm", keepdims=1)
        for name in (transformed, residual, centred)
    ]
    row = graph.node("Concat", norms, "norms", axis=1)
    graph.node("MatMul", [row, graph.tensor("factors", compute_spread_factors(bounds)[:, None])], "spread")
