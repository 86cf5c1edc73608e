"""Rows of 4 bits: a first estimate of every logit, from an eighth of the bytes, and by how much it may be off.

In the basis of `bounds`, with its g and P, t_v = s_v q_v + e_v, where each number of q_v is one of the 16 halves -15/2,
-13/2, .. 15/2; and g = c i + r with i in -127..127, one digit. So, as there,

    w_v.h = w_v.m + a.y + s_v c (q_v.i) + d_v,    d_v = s_v q_v.r + e_v.g,    |d_v| <= s_v (K_q |r| + K_e |g|) = s_v B.

s_v is the smallest step with |e_v| <= K s_v, for one K: what is cut off at the ends of the range is weighed against
finer steps within. So all classes' errors are as large in their steps, K_e = max_v |e_v| / s_v is hardly over K, and
s_v B is as small as one number a class allows. A row of zeros has s_v = 0.

B is what one class may be off by, if its error points where the context does. Not all errors do. Let E be the matrix
of rows e_v / s_v, Q that of rows q_v. Then the sum over all classes of (d_v / s_v)^2 is at most D^2, D = |E g| + |Q r|,
and

    |E g|^2 = g^T E^T E g <= a |g|^2 + sum_i (u_i.g)^2,

u_i the eigenvectors of E^T E with the largest eigenvalues l_i, each times the root of l_i - a, and a the largest of the
other eigenvalues; the same for Q. D is some 85 B^2 for SmolLM2's layer: errors are as though 85 classes of 49,152 were
off by all that a class may be. What follows for a sum of exp(z_v) over some classes R, z_v = x_v + d_v, p_v = exp(x_v):

    sum_R exp(z_v) - sum_R p_v  =  sum_R p_v d_v + sum_R p_v (exp(d_v) - 1 - d_v)
                               <=  D (sum_R p_v^2 s_v^2)^1/2 + D^2 max_R (exp(x_v + s_v B) min(1 / B^2, s_v^2 / 2)),

by Cauchy-Schwarz, and since (exp(d) - 1 - d) / d^2 grows with d and is at most exp(d) / 2, and at most exp(d) / d^2 for
d > 0. Below the estimates the sum is by at most D (sum_R p_v^2 s_v^2)^1/2, since exp(d) >= 1 + d. Both first terms may
be replaced by B sum_R p_v s_v.

Rounding is that of `bounds`, with one digit in the place of two: B = K_e (|g| + r') + K_q (r' + 68 u |g|), where r' is
|r| and what g loses. In D: g is off by at most gamma |y| |P|_F, which E and Q multiply by at most the roots of their
largest l_i; 68 u |g| K_q of each class are V^1/2 times as much of all; e_v itself is off by a share of |t_v|; and the
products u_i.g, summed in float32, are together off by at most d u |g| times the norm of all u_i. The
eigenvalues are those of products in float64, and the stored u_i are rounded to float32: `a` allows for both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from shortlist.core.results import DoubleArray

LEVELS = 16
LARGEST = (LEVELS - 1) / 2  # the largest number of q_v
STEP_ERROR = 0.32  # K for d = 1: numbers of a normal distribution lose least so, at 16 levels
STEP_ROWS = 256  # whose steps are chosen at once: few enough that they stay in a processor's cache
STEP_HALVINGS = 9  # of the range in which a step is searched, from `LEAST_STEP` of what cuts nothing off
LEAST_STEP = 0.25
ERROR_DIRECTIONS, LEVEL_DIRECTIONS = 64, 16  # eigenvectors kept: more tell little more
LOST_UNITS = 68  # float32 units of |g| lost in residual and estimate, as of int8
BLOCK_CLASSES, LINE_COLUMNS, LANE_COLUMNS = 16, 8, 4  # as `multiply_four_bit_block` of the loops reads them
UNIT, DOUBLE_UNIT = 2.0**-24, 2.0**-53
SPARE_FACTOR = 1 + 1e-4  # for the roundings on the way to norms and bounds themselves

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.uint8]
Levels = TypeVar("Levels", Floats, DoubleArray)


@dataclass(frozen=True)
class FourBits:
    """codes: [blocks, lines, 16, 4] uint8, u = q + 15 / 2 of eight columns a line. scale: [V], s_v.

    factors: [7], of the reach B (norms of g, r, y) and of the deviation D (a of E and of Q, norms of g and y).
    error_directions, level_directions: [n, d], the u_i of E and of Q.
    """

    codes: Codes
    scale: Floats
    factors: Floats
    error_directions: Floats
    level_directions: Floats

    @property
    def finite(self) -> bool:
        """Whether all numbers fit into float32."""
        parts = self.scale, self.factors, self.error_directions, self.level_directions
        return all(bool(np.isfinite(part).all()) for part in parts)


@dataclass
class FourBitRows:
    """The rows of a layer, chunk by chunk, and the products that bound their errors together."""

    classes: int
    dim: int
    parts: list[tuple[Codes, Floats]] = field(default_factory=list)
    weight_error: float = 0.0
    level_norm: float = 0.0
    inexact_squares: float = 0.0

    def __post_init__(self) -> None:
        self.error_products = np.zeros((self.dim, self.dim))
        self.level_products = np.zeros((self.dim, self.dim))

    def add(self, transformed: DoubleArray, change_error: float) -> None:
        """Quantise rows t_v [n, d], whole blocks but for the last rows. change_error: share of |t_v| it may be off."""
        scale = choose_steps(transformed)
        steps = np.where(scale > 0, scale, 1).astype(np.float64)[:, None]
        levels = round_to_levels(transformed / steps)
        errors = np.where(scale[:, None] > 0, transformed / steps - levels, 0.0)
        inexact = 2 * change_error * np.linalg.norm(transformed, axis=1) / steps[:, 0]
        self.weight_error = max(self.weight_error, float((np.linalg.norm(errors, axis=1) + inexact).max()))
        self.level_norm = max(self.level_norm, float(np.linalg.norm(levels, axis=1).max()))
        self.inexact_squares += float((inexact**2).sum())
        self.error_products += errors.T @ errors
        exact = levels.astype(np.float32)  # sums of fewer than 2^24 / 225 products of halves are exact in float32
        self.level_products += exact.T @ exact
        self.parts.append((pack_four_bits((levels + LARGEST).astype(np.uint8)), scale))

    def finish(self, change_norm: float, change_gamma: float) -> FourBits:
        """All rows together. change_norm: |P|_F. change_gamma: gamma of the sums of y P."""
        terms = self.classes + self.dim
        weight, error_directions = bound_products(self.error_products, ERROR_DIRECTIONS, terms)
        level_weight, level_directions = bound_products(self.level_products, LEVEL_DIRECTIONS, terms)
        both, lost = self.weight_error + self.level_norm, LOST_UNITS * UNIT * self.level_norm
        rounding = change_gamma * change_norm
        largest = bound_largest(weight, error_directions) + bound_largest(level_weight, level_directions)
        spread = [self.weight_error + lost, both, both * rounding]
        sizes = np.linalg.norm(error_directions) + np.linalg.norm(level_directions)
        inexact = self.inexact_squares**0.5 + self.classes**0.5 * lost + self.dim * UNIT * float(sizes)
        deviation = [weight, level_weight, inexact, largest * rounding]
        codes, scale = (np.concatenate(list(arrays)) for arrays in zip(*self.parts, strict=True))
        factors = np.array([factor * SPARE_FACTOR for factor in spread + deviation], np.float32)
        return FourBits(codes, scale, factors, error_directions, level_directions)


def choose_steps(rows: DoubleArray) -> Floats:
    """The steps [n] float32 of rows [n, d]: the smallest with an error of at most K steps, by bisection; 0 of zeros."""
    peak = np.abs(rows).max(axis=1)
    units = np.where(peak > 0, peak, 1.0)
    steps = np.empty(len(rows), np.float32)
    for start in range(0, len(rows), STEP_ROWS):
        part = slice(start, start + STEP_ROWS)
        steps[part] = bisect_steps((rows[part] / units[part, None]).astype(np.float32)) * units[part]
    return np.where(peak > 0, np.maximum(steps, np.finfo(np.float32).tiny), np.float32(0))


def bisect_steps(rows: Floats) -> Floats:
    """The steps [n] of rows [n, d] whose largest number has the size 1.

    In float32, since steps need not be exact: what they lose is measured afterwards.
    """
    limit = STEP_ERROR * rows.shape[1] ** 0.5
    high = np.full(len(rows), 1 / LARGEST, np.float32)
    low = LEAST_STEP * high
    for _ in range(STEP_HALVINGS):
        middle = (low + high) / 2
        scaled = rows / middle[:, None]
        fits = np.linalg.norm(scaled - round_to_levels(scaled), axis=1) <= limit
        low, high = np.where(fits, low, middle), np.where(fits, middle, high)
    return high


def round_to_levels(numbers: Levels) -> Levels:
    """The nearest of the 16 halves."""
    levels: Levels = np.clip(np.floor(numbers) + 0.5, -LARGEST, LARGEST)
    return levels


def bound_products(products: DoubleArray, count: int, terms: int) -> tuple[float, Floats]:
    """`a` and directions u_i [n, d], n from 1 to `count`, of a matrix of products M [d, d], each a sum of `terms`.

    For every g, g^T M g <= a |g|^2 + sum_i (u_i.g)^2.
    """
    values, vectors = np.linalg.eigh(products)
    first = max(0, len(values) - count)
    weight = max(0.0, float(values[max(0, first - 1)]))
    exact = (vectors[:, first:] * np.sqrt(np.maximum(values[first:] - weight, 0))).T
    directions = np.ascontiguousarray(exact, np.float32)  # safetensors takes other arrays for contiguous ones
    size, off = np.linalg.norm(exact), np.linalg.norm(exact - directions)
    spare = float(2 * size * off + off**2) + 8 * terms * DOUBLE_UNIT * float(np.trace(products))
    return weight + spare, directions


def bound_largest(weight: float, directions: Floats) -> float:
    """The root of the largest a |g|^2 + sum_i (u_i.g)^2 of a g of norm 1."""
    return math.sqrt(weight + float(np.linalg.norm(directions.astype(np.float64), 2)) ** 2)


def pack_four_bits(codes: Codes) -> Codes:
    """Pack codes 0..15 [V, d] into [blocks, lines, 16, 4]: a line holds eight columns of sixteen classes.

    The low halves of its bytes hold the first four columns, the high halves the next four. Classes and columns beyond
    the last are zeros.
    """
    classes, dim = codes.shape
    blocks, lines = -(-classes // BLOCK_CLASSES), -(-dim // LINE_COLUMNS)
    whole = np.zeros((blocks * BLOCK_CLASSES, lines * LINE_COLUMNS), np.uint8)
    whole[:classes, :dim] = codes
    parts = whole.reshape(blocks, BLOCK_CLASSES, lines, 2, LANE_COLUMNS).transpose(3, 0, 2, 1, 4)
    packed: Codes = parts[0] | parts[1] << 4
    return np.ascontiguousarray(packed)
