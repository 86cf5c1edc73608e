"""The basis in which rows and contexts of a layer are quantised for bounds: why it is so chosen says `bounds`."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from shortlist.core.results import DoubleArray

BOUND_BASIS_RIDGE_SHARE = 1e-3  # of the mean variance of a context's component, added to every direction
MIN_EIGENVALUE_SHARE = 1e-6  # of the largest eigenvalue: directions that no row uses
GRAM_CHUNK_CLASSES = 8192
GRAM_SAMPLE_ROWS = 65_536  # that choose the basis: any basis is right, a good one is fast
COMMON_SAMPLE_ROWS = 32_768  # that choose what is taken off all rows: any row is right
UNIT, DOUBLE_UNIT = 2.0**-24, 2.0**-53  # roundoff of float32 and of float64

Floats = npt.NDArray[np.float32]


def choose_common(weight: Floats) -> Floats:
    """A row [d] that is taken off all rows of `weight` [V, d], since it leaves shorter ones; zeros where none does."""
    sample = weight[:: -(-len(weight) // COMMON_SAMPLE_ROWS)]
    norms = np.linalg.norm(sample, axis=1)
    some = sample[norms > 0]
    if not len(some):
        return np.zeros(weight.shape[1], np.float32)
    common: Floats = np.median(some, axis=0)
    left = np.linalg.norm(some - common, axis=1) / norms[norms > 0]
    return common if left.mean() < 1 else np.zeros_like(common)


def balance_basis(weight: Floats, common: Floats, centred: DoubleArray, seed: int) -> DoubleArray:
    """The basis P [d, d] of `bounds`, for rows of `weight` [V, d] less `common` [d], and `centred` contexts [n, d]."""
    dim = weight.shape[1]
    covariance = centred.T @ centred / len(centred)
    ridge = BOUND_BASIS_RIDGE_SHARE * (
        np.trace(covariance) / dim or 1.0
    )  # contexts that are all the same prefer no direction
    factor = np.linalg.cholesky(covariance + ridge * np.eye(dim))
    sample, gram = weight[:: -(-len(weight) // GRAM_SAMPLE_ROWS)], np.zeros((dim, dim))
    for start in range(0, len(sample), GRAM_CHUNK_CLASSES):
        rows = sample[start : start + GRAM_CHUNK_CLASSES].astype(np.float64) - common
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(norms > 0, norms, 1.0)
        gram += rows.T @ rows
    values, directions = np.linalg.eigh(factor.T @ gram @ factor)
    roots = np.maximum(values, MIN_EIGENVALUE_SHARE * values[-1] if values[-1] > 0 else 1.0) ** 0.25
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((dim, dim)))[0]
    change: DoubleArray = np.linalg.solve(factor.T, directions * roots) @ rotation
    return change


def round_to_halves(numbers: DoubleArray) -> Floats:
    """Float32 numbers whose lower 16 bits are 0: any basis is right, and loops read half as many bytes of this one."""
    bits = numbers.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)


def bound_inversion_error(change: DoubleArray, inverse: DoubleArray) -> float:
    """The share of |P^-1 w| by which a product with `inverse` may be off: an inexact inverse, and float64 rounding."""
    sizes = float(np.linalg.norm(change) * np.linalg.norm(inverse))
    return float(np.linalg.norm(inverse @ change - np.eye(len(change)))) + 4 * len(change) * DOUBLE_UNIT * sizes


def count_blocks(dim: int) -> int:
    """The number of blocks, and of terms in each."""
    return math.isqrt(dim - 1) + 1


def measure_change(change: Floats) -> tuple[float, float]:
    """|P|_F, and the gamma of its sums."""
    operations = 2 * count_blocks(len(change)) + 1
    return float(np.linalg.norm(change.astype(np.float64))), operations * UNIT / (1 - operations * UNIT)
