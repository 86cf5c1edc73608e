"""bounds.onnx: an estimate of every logit from int8 rows, and by how much it may be off; certified answers rest on it.

The idea is that of VA-files (Weber et al., VLDB 1998) and of certified int8 heads: a coarse score and a bound on its
error. Every figure below holds for the numbers as they are stored. Let y = h - m (m a mean context), g = y P with an
invertible P [d, d], and t_v = P^-1 (w_v - a), a one row for all classes, so that w_v.y = a.y + t_v.g. Quantised,
t_v = s_v q_v + e_v with q_v in -127..127, and g = c i + r, where i = i1 + i2 / 126 are two digits of -63..63. Then

    w_v.h = w_v.m + a.y + s_v c (q_v.i) + s_v q_v.r + e_v.g,    and by Cauchy-Schwarz the error of the first terms is
    |s_v q_v.r + e_v.g| <= s_v (K_q |r| + K_e |g|),       K_q = max_v |q_v|,  K_e = max_v |e_v| / s_v.

|r| is taken of r itself, never as a difference of squares. a is the median of each column: language models' rows have
much in common, and are shorter by a tenth without it, as are their bounds. P is chosen so that the bound is small in
the mean: with C = E[y y^T] = L L^T and W L = U S V^T (rows of W at unit length), P = L^-T V S^1/2 minimises E|P^-1 w|
E|y P|, and a rotation, which changes no norm, spreads each row evenly over its int8 range. A soft-cap has a slope of at
most 1: the capped estimate is off by no more than the estimate.

Digits of 7 bits, since instructions without VNNI (vpmaddubsw) add two products of uint8 and int8 in 16 bits and
saturate: 2 x 127 x 127 = 32,258 fits, and every sum is exact on every processor. Two leave next to no error.

Rounding, with u = 2^-24 and gamma_n = n u / (1 - n u) (Higham, Accuracy and Stability, 3.1), all in float32:

- g: y is one operation, and P is applied in b = ceil(sqrt d) blocks of b, whose sums are then added: so any order of
  summation loses at most gamma_n sum_i |y_i| |P_ij| of g_j, n = 2 b + 1, and n = 576 + 1 in one piece would have lost
  ten times as much. Hence |r| grows by at most gamma_n |y| |P|_F.
- r: two products and two differences, each off by u of at most |g|: 4 u |g|.
- the estimate: conversions of sums, step and digit, the two products and their sum, s_v, and the sum with w_v.m are at
  most 12 operations on terms of at most s_v K_q (|c i1| + |c i2 / 126|) <= 3 s_v K_q |g|, since rounding to a whole
  number never moves a number by more than itself: 64 u K_q |g| covers them. What w_v.m loses is `floor`.
- a.y, summed in float64 and rounded, and the sums with it: 8 u |a| |y|, which `bound_common` makes a part of the norms
  that bound the rounding of exact logits, |y| being at most (|h| + 1) (|m| + 1).

Together: |logit_v - estimate_v| <= s_v spread + floor, spread = K_e (|g| + r') + K_q (r' + 68 u |g|).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from shortlist.core.results import DoubleArray
from shortlist_models.svd import INT8_LEVELS

from shortlist_exporter.inputs.sources import Dense

from .balanced_basis import (
    balance_basis,
    bound_inversion_error,
    choose_common,
    measure_change,
    round_to_halves,
)
from .four_bits import LOST_UNITS, SPARE_FACTOR, FourBitRows, FourBits

DIGIT_LEVELS = 63  # of one digit of a context: -63..63
SECOND_DIGIT_FACTOR = 126  # how much finer the second digit is than the first
BASIS_SAMPLE_ROWS = 32_768  # contexts that choose the basis: any basis is right, a good one is fast
BOUND_CHUNK_CLASSES = 8192
UNIT, DOUBLE_UNIT = 2.0**-24, 2.0**-53  # roundoff of float32 and of float64
UNDERFLOW_ALLOWANCE = 1e-30  # absolute: what underflows in float32

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Bounds:
    """mean, common: [d] float32. change: P [d, d] float32. integers: [V, d] int8. scale: [V] float32, s_v.

    constant: [V] float32, w_v.m and bias. weight_error: K_e. integer_norm: K_q. floor: see above. norms: [V] float32.
    four_bits: the same rows in 4 bits.
    """

    mean: npt.NDArray[np.float32]
    common: Floats
    change: Floats
    integers: npt.NDArray[np.int8]
    scale: Floats
    constant: Floats
    weight_error: float
    integer_norm: float
    floor: float
    norms: Floats
    four_bits: FourBits

    @property
    def finite(self) -> bool:
        """Whether all numbers fit into float32."""
        numbers = [self.weight_error, self.floor, *self.scale, *self.constant, *self.norms]
        return bool(np.isfinite(numbers).all()) and self.four_bits.finite


def compute_bounds(dense: Dense, contexts: Floats, seed: int) -> Bounds:
    """Compute basis and integers for logits scale * (weight h + bias), before soft-cap and padding."""
    rows = np.random.default_rng(seed).permutation(len(contexts))[:BASIS_SAMPLE_ROWS]
    sample = contexts[np.sort(rows)].astype(np.float64)
    mean = sample.mean(axis=0).astype(np.float32)
    row = choose_common(dense.weight)
    change = round_to_halves(balance_basis(dense.weight, row, sample - mean, seed))
    common = row * np.float32(dense.logit_scale)
    inverse = np.linalg.inv(change.astype(np.float64))
    change_error = bound_inversion_error(change.astype(np.float64), inverse)
    integers = np.empty(dense.weight.shape, np.int8)
    scale, constant = np.empty(dense.classes, np.float32), np.empty(dense.classes)
    weight_error = integer_norm = 0.0
    four_bits = FourBitRows(dense.classes, dense.dim)
    for start in range(0, dense.classes, BOUND_CHUNK_CLASSES):
        part = slice(start, start + BOUND_CHUNK_CLASSES)
        weight = dense.weight[part].astype(np.float64) * dense.logit_scale
        constant[part] = weight @ mean.astype(np.float64)
        transformed = (weight - common) @ inverse.T
        scale[part], quantized, error = quantize_transformed(transformed, change_error)
        four_bits.add(transformed, change_error)
        integers[part] = quantized
        weight_error = max(weight_error, error)
        integer_norm = max(integer_norm, float(np.linalg.norm(quantized, axis=1).max()))
    if dense.bias is not None:
        constant += dense.bias.astype(np.float64) * dense.logit_scale
    norms = compute_norms(dense) + bound_common(common, mean)
    float64_error = (dense.dim + 4) * DOUBLE_UNIT * float(norms.max()) * (1 + float(np.linalg.norm(mean)))
    floor = 8 * UNIT * float(np.abs(constant).max()) + float64_error + UNDERFLOW_ALLOWANCE
    single = constant.astype(np.float32), (norms * SPARE_FACTOR).astype(np.float32)
    coarse = four_bits.finish(*measure_change(change))
    return Bounds(
        mean, common, change, integers, scale, single[0], weight_error, integer_norm, floor, single[1], coarse
    )


def quantize_transformed(transformed: DoubleArray, change_error: float) -> tuple[Floats, DoubleArray, float]:
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


def compute_spread_factors(bounds: Bounds) -> Floats:
    """The factors [3] of the norms of g, of its residual and of y in the spread."""
    norm, gamma = measure_change(bounds.change)
    rounding = gamma * norm
    both = bounds.weight_error + bounds.integer_norm
    factors = [bounds.weight_error + bounds.integer_norm * LOST_UNITS * UNIT, both, both * rounding]
    return np.array([factor * SPARE_FACTOR for factor in factors], np.float32)


def bound_common(common: Floats, mean: Floats) -> float:
    """What the product with the common row loses, as a norm of all classes, of which `core.rounding` takes d + 4 u."""
    return 8 * float(np.linalg.norm(common)) * (1 + float(np.linalg.norm(mean))) / (common.size + 4)


def compute_norms(dense: Dense) -> DoubleArray:
    """|(w_v, b_v)| times the logit scale, [V], which bounds the rounding of a logit."""
    squares = np.einsum("vd,vd->v", dense.weight, dense.weight, dtype=np.float64)
    if dense.bias is not None:
        squares += dense.bias.astype(np.float64) ** 2
    norms: DoubleArray = np.sqrt(squares) * dense.logit_scale
    return norms
