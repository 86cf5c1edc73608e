"""bounds.onnx: an estimate of every logit from int8 rows, and by how much it may be off; certified answers rest on it.

The idea is that of VA-files (Weber et al., VLDB 1998) and of certified int8 heads: a coarse score and a bound on its
error. Every figure below holds for the numbers as they are stored. Let y = h - m (m a mean context), g = y P with an
invertible P [d, d], and t_v = P^-1 w_v, so that w_v.y = t_v.g. Quantised, t_v = s_v q_v + e_v with q_v in -127..127,
and g = c i + r, where i = i1 + i2 / 126 are two digits of -63..63. Then

    w_v.h = w_v.m + s_v c (q_v.i) + s_v q_v.r + e_v.g,    and by Cauchy-Schwarz the error of the first two terms is
    |s_v q_v.r + e_v.g| <= s_v (K_q |r| + K_e |g|),       K_q = max_v |q_v|,  K_e = max_v |e_v| / s_v.

|r| is taken of r itself, never as a difference of squares. P is chosen so that the bound is small in the mean: with
C = E[y y^T] = L L^T and W L = U S V^T (rows of W at unit length), P = L^-T V S^1/2 minimises E|P^-1 w| E|y P|, and a
rotation, which changes no norm, spreads each row evenly over its int8 range. A soft-cap has a slope of at most 1: the
capped estimate is off by no more than the estimate.

Digits of 7 bits, since instructions without VNNI (vpmaddubsw) add two products of uint8 and int8 in 16 bits and
saturate: 2 x 127 x 127 = 32,258 fits, and every sum is exact on every processor. Two digits cost little at one row,
where the time goes into reading the rows, and leave next to no error of the context.

Rounding, with u = 2^-24 and gamma_n = n u / (1 - n u) (Higham, Accuracy and Stability, 3.1), all in float32:

- g: y is one operation, and P is applied in b = ceil(sqrt d) blocks of b, whose sums are then added: so any order of
  summation loses at most gamma_n sum_i |y_i| |P_ij| of g_j, n = 2 b + 1, and n = 576 + 1 in one piece would have lost
  ten times as much. Hence |r| grows by at most gamma_n |y| |P|_F.
- r: two products and two differences, each off by u of at most |g|: 4 u |g|.
- the estimate: conversions of sums, step and digit, the two products and their sum, s_v, and the sum with w_v.m are at
  most 12 operations on terms of at most s_v K_q (|c i1| + |c i2 / 126|) <= 3 s_v K_q |g|, since rounding to a whole
  number never moves a number by more than itself: 64 u K_q |g| covers them. What w_v.m loses is `floor`.

Together: |logit_v - estimate_v| <= s_v spread + floor, spread = K_e (|g| + r') + K_q (r' + 68 u |g|).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from onnx import TensorProto
from safetensors.numpy import save
from shortlist.bundle.manifest import RawArray
from shortlist.bundle.reader import CERTIFICATE_FILE, GRAPHS_FOLDER
from shortlist_models.svd import INT8_LEVELS

from shortlist_exporter.inputs.sources import Dense

from .builder import GraphBuilder, GraphFiles, make_value
from .dense import add_finish

MIN_WEIGHTS = 4 << 20  # V x d; a smaller layer is answered by dense in about the time that the bounds take
DIGIT_LEVELS = 63  # of one digit of a context: -63..63
SECOND_DIGIT_FACTOR = 126  # how much finer the second digit is than the first
BASIS_SAMPLE_ROWS = 32_768  # contexts that choose the basis: any basis is right, a good one is fast
BOUND_BASIS_RIDGE_SHARE = 1e-3  # of the mean variance of a context's component, added to every direction
MIN_EIGENVALUE_SHARE = 1e-6  # of the largest eigenvalue: directions that no row uses
BOUND_CHUNK_CLASSES = 8192
UNIT, DOUBLE_UNIT = 2.0**-24, 2.0**-53
LOST_UNITS = 68  # float32 units of |g| lost in residual and estimate
UNDERFLOW_ALLOWANCE = 1e-30  # absolute: what underflows in float32
SPARE_FACTOR = 1 + 1e-4  # for the roundings on the way to norms and bound themselves

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Bounds:
    """mean: [d] float32. change: P [d, d] float32. integers: [V, d] int8. scale: [V] float32, s_v.

    constant: [V] float32, w_v.m and bias. weight_error: K_e. integer_norm: K_q. floor: see above. norms: [V] float32.
    """

    mean: npt.NDArray[np.float32]
    change: Floats
    integers: npt.NDArray[np.int8]
    scale: Floats
    constant: Floats
    weight_error: float
    integer_norm: float
    floor: float
    norms: Floats

    @property
    def finite(self) -> bool:
        """Whether all numbers fit into float32."""
        return bool(np.isfinite([self.weight_error, self.floor, *self.scale, *self.constant, *self.norms]).all())


def is_worthwhile(dense: Dense) -> bool:
    """Whether the layer is so large that bounds may be faster than dense."""
    return dense.weight.size >= MIN_WEIGHTS


def compute_bounds(dense: Dense, contexts: Floats, seed: int) -> Bounds:
    """Compute basis and integers for logits scale * (weight h + bias), before soft-cap and padding."""
    rows = np.random.default_rng(seed).permutation(len(contexts))[:BASIS_SAMPLE_ROWS]
    sample = contexts[np.sort(rows)].astype(np.float64)
    mean = sample.mean(axis=0).astype(np.float32)
    change = balance_basis(dense.weight, sample - mean, seed).astype(np.float32)
    inverse = np.linalg.inv(change.astype(np.float64))
    change_error = bound_inversion_error(change.astype(np.float64), inverse)
    integers = np.empty(dense.weight.shape, np.int8)
    scale, constant = np.empty(dense.classes, np.float32), np.empty(dense.classes)
    weight_error = integer_norm = 0.0
    for start in range(0, dense.classes, BOUND_CHUNK_CLASSES):
        part = slice(start, start + BOUND_CHUNK_CLASSES)
        weight = dense.weight[part].astype(np.float64) * dense.logit_scale
        constant[part] = weight @ mean.astype(np.float64)
        scale[part], quantized, error = quantize_transformed(weight @ inverse.T, change_error)
        integers[part] = quantized
        weight_error = max(weight_error, error)
        integer_norm = max(integer_norm, float(np.linalg.norm(quantized, axis=1).max()))
    if dense.bias is not None:
        constant += dense.bias.astype(np.float64) * dense.logit_scale
    norms = compute_norms(dense)
    float64_error = (dense.dim + 4) * DOUBLE_UNIT * float(norms.max()) * (1 + float(np.linalg.norm(mean)))
    floor = 8 * UNIT * float(np.abs(constant).max()) + float64_error + UNDERFLOW_ALLOWANCE
    single = constant.astype(np.float32), (norms * SPARE_FACTOR).astype(np.float32)
    return Bounds(mean, change, integers, scale, single[0], weight_error, integer_norm, floor, single[1])


def bound_inversion_error(change: Doubles, inverse: Doubles) -> float:
    """The share of |P^-1 w| by which a product with `inverse` may be off: an inexact inverse, and float64 rounding."""
    sizes = float(np.linalg.norm(change) * np.linalg.norm(inverse))
    return float(np.linalg.norm(inverse @ change - np.eye(len(change)))) + 4 * len(change) * DOUBLE_UNIT * sizes


def balance_basis(weight: Floats, centred: Doubles, seed: int) -> Doubles:
    """The basis P [d, d] of the module's docstring, for `weight` [V, d] and `centred` contexts [n, d]."""
    dim = weight.shape[1]
    covariance = centred.T @ centred / len(centred)
    ridge = BOUND_BASIS_RIDGE_SHARE * (
        np.trace(covariance) / dim or 1.0
    )  # contexts that are all the same prefer no direction
    factor = np.linalg.cholesky(covariance + ridge * np.eye(dim))
    gram = np.zeros((dim, dim))
    for start in range(0, len(weight), BOUND_CHUNK_CLASSES):
        rows = weight[start : start + BOUND_CHUNK_CLASSES].astype(np.float64)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(norms > 0, norms, 1.0)
        gram += rows.T @ rows
    values, directions = np.linalg.eigh(factor.T @ gram @ factor)
    roots = np.maximum(values, MIN_EIGENVALUE_SHARE * values[-1] if values[-1] > 0 else 1.0) ** 0.25
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]
    change: Doubles = np.linalg.solve(factor.T, directions * roots) @ rotation
    return change


def quantize_transformed(transformed: Doubles, change_error: float) -> tuple[Floats, Doubles, float]:
    """Scale [n], integers [n, d] and max |e_v| / s_v of rows t_v [n, d].

    change_error: share of |t_v| by which it may be off.
    """
    peak = np.abs(transformed).max(axis=1)
    scale = np.where(peak > 0, np.maximum(peak / INT8_LEVELS, np.finfo(np.float32).tiny), 1.0)
    scale = np.nextafter(scale.astype(np.float32), np.float32(np.inf))  # so that 127 is never passed
    steps = scale.astype(np.float64)[:, None]
    integers = np.round(transformed / steps)
    errors = np.linalg.norm(transformed - steps * integers, axis=1) + 2 * change_error * np.linalg.norm(
        transformed, axis=1
    )
    return scale, integers, float((errors / steps[:, 0]).max())


def write_bounds(folder: Path, dense: Dense, bounds: Bounds) -> GraphFiles:
    """bounds.onnx: `context` [B, d] -> `estimate` [B, V] and `spread` [B, 1], float32; see the module's docstring."""
    graph = GraphBuilder(folder)
    centred = graph.node("Sub", ["context", graph.tensor("certificate_mean", bounds.mean)], "centred")
    transformed = add_basis_change(graph, centred, bounds.change)
    digits, steps, residual = add_context_digits(graph, transformed)
    weights = graph.file("certificate_rows", bounds.integers.T)
    zero = graph.tensor("zero_digit", np.uint8(DIGIT_LEVELS + 1))
    sums = graph.node("Cast", [graph.node("MatMulInteger", [digits, weights, zero], "sums")], "s", to=TensorProto.FLOAT)
    products = graph.node("Squeeze", [graph.node("MatMul", [steps, sums], "product_row"), "middle_axis"], "products")
    in_logits = graph.node("Mul", [products, graph.tensor("certificate_scale", bounds.scale)], "in_logits")
    logits = graph.node("Add", [in_logits, graph.tensor("certificate_constant", bounds.constant)], "logits_before")
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
    return GraphFiles({"bounds": path.name}, describe_arrays(bounds))


def describe_arrays(bounds: Bounds) -> dict[str, RawArray]:
    """What loops read in the place of bounds.onnx: integers by column [d, V], and the change of basis in blocks."""
    blocks, dim = count_blocks(len(bounds.change)), len(bounds.change)
    return {
        "bounds_columns": RawArray.describe("certificate_rows.bin", bounds.integers.T),
        "bounds_change": RawArray(file="certificate_change.bin", dtype="float32", shape=(blocks, blocks, dim)),
    }


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


def count_blocks(dim: int) -> int:
    """The number of blocks, and of terms in each."""
    return math.isqrt(dim - 1) + 1


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


def compute_spread_factors(bounds: Bounds) -> Floats:
    """The factors [3] of the norms of g, of its residual and of y in the spread."""
    operations = 2 * count_blocks(len(bounds.change)) + 1
    gamma = operations * UNIT / (1 - operations * UNIT)
    rounding = gamma * float(np.linalg.norm(bounds.change.astype(np.float64)))
    both = bounds.weight_error + bounds.integer_norm
    factors = [bounds.weight_error + bounds.integer_norm * LOST_UNITS * UNIT, both, both * rounding]
    return np.array([factor * SPARE_FACTOR for factor in factors], np.float32)


def compute_norms(dense: Dense) -> Doubles:
    """|(w_v, b_v)| times the logit scale, [V], which bounds the rounding of a logit."""
    squares = np.einsum("vd,vd->v", dense.weight, dense.weight, dtype=np.float64)
    if dense.bias is not None:
        squares += dense.bias.astype(np.float64) ** 2
    norms: Doubles = np.sqrt(squares) * dense.logit_scale
    return norms


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
        "factors": compute_spread_factors(bounds),
        "constant": constant,
    }
    (folder / CERTIFICATE_FILE).write_bytes(save(arrays))
    return write_bounds(folder / GRAPHS_FOLDER, dense, bounds).below(GRAPHS_FOLDER)
