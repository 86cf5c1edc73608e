"""The graph bounds.onnx as compiled loops: an estimate of every logit from int8 rows, and a bound on its error.

Results equal the graph's but for rounding, which may move a digit, and take less time: rows are read at the speed of
memory, not at that of an operator's kernel. Sums of bytes are exact in both. Float operations are those that the
exporter's `certificate` accounts for, in blocks of the same size, and LLVM may not contract or reorder them.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray
from shortlist.kernels.primitives.arrays import Ints
from shortlist.kernels.primitives.digits import COARSE_LEVELS, FINE_LEVELS, Digits, extract_digit, find_peak
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.layout import LANE_BYTES, LANES, WEIGHT_ZERO_POINT, Bytes, arrange_blocks
from shortlist.kernels.primitives.products import multiply_pair
from shortlist.kernels.primitives.vnni import VNNI
from shortlist.runtime.parallel import ThreadedRows

__all__ = ["VNNI", "CompiledBounds"]


class BoundTables(NamedTuple):
    """The exporter's `Bounds`: mean [d], change of basis [b, b, d], factors [3] of norms, scale [V], constant [V].

    rows: [V / LANES, W / LANE_BYTES, LANES, LANE_BYTES], padded with zeros; W is d or a few more.
    """

    mean: FloatArray
    change: FloatArray
    factors: FloatArray
    scale: FloatArray
    constant: FloatArray
    rows: Bytes


@compile_loop
def change_basis(context: FloatArray, mean: FloatArray, change: FloatArray, turned: FloatArray) -> Any:
    """Write (context - mean) P to `turned` [d], summed in blocks; returns |context - mean|."""
    blocks, part = len(change), np.empty(turned.size, np.float32)
    norm = 0.0
    turned[:] = 0
    for block in range(blocks):
        part[:] = 0
        for i in range(blocks * block, min(blocks * block + blocks, mean.size)):
            centred = context[i] - mean[i]
            norm += np.float64(centred) * np.float64(centred)
            row = change[block, i - blocks * block]
            for j in range(part.size):
                part[j] += centred * row[j]
        for j in range(part.size):
            turned[j] += part[j]
    return np.sqrt(norm)


@compile_loop
def compute_norm(values: FloatArray) -> Any:
    """Return a vector's Euclidean norm, computed in float64."""
    total = 0.0
    for i in range(values.size):
        total += np.float64(values[i]) * np.float64(values[i])
    return np.sqrt(total)


@compile_loop
def quantize_contexts(
    contexts: FloatArray, tables: BoundTables, digits: Digits, steps: FloatArray, shifts: Ints, spreads: FloatArray
) -> None:
    """Change the basis of contexts [B, d] and split them into digits.

    Writes digits [B, 2, W] int8, steps and shifts [B, 2] of the digits, and `spreads` [B, 1], which bound the errors.
    """
    dim = tables.mean.size
    turned = np.empty(dim, np.float32)
    for row in range(len(contexts)):
        norm = change_basis(contexts[row], tables.mean, tables.change, turned)
        steps[row, 0] = find_peak(turned) / COARSE_LEVELS
        steps[row, 1] = steps[row, 0] / FINE_LEVELS
        spread = tables.factors[0] * compute_norm(turned) + tables.factors[2] * norm
        for digit in range(2):
            shifts[row, digit] = extract_digit(turned, steps[row, digit], digits[row, digit, :dim])
        spreads[row, 0] = spread + tables.factors[1] * compute_norm(turned)


@compile_loop
def estimate_logits(
    first: int, last: int, tables: BoundTables, digits: Digits, steps: FloatArray, shifts: Ints, estimates: FloatArray
) -> None:
    """Write estimates [B, V] of the classes of blocks `first` to `last` - 1, reading each row of weights once."""
    sums = np.empty(2 * LANES, np.int32)
    for block in range(first, last):
        start = LANES * block
        for row in range(len(digits)):
            multiply_pair(tables.rows, block, digits[row], sums)
            coarse, fine = steps[row]
            for i in range(min(LANES, tables.scale.size - start)):
                whole, rest = sums[i] - shifts[row, 0], sums[LANES + i] - shifts[row, 1]
                product = coarse * np.float32(whole) + fine * np.float32(rest)
                estimates[row, start + i] = product * tables.scale[start + i] + tables.constant[start + i]


class CompiledBounds:
    """Bounds on all logits, called as the graph is. Threads may share it."""

    def __init__(self, bundle: Bundle, arrays: dict[str, npt.NDArray[Any]], threads: int) -> None:
        """Lay out the rows and compile the loops, which takes seconds where they are not cached.

        arrays: of certificate.safetensors. threads: that may share a call.
        """
        self.threaded_rows = ThreadedRows(threads)
        manifest = bundle.manifest
        dim = manifest.dim
        constant: FloatArray = arrays["constant"]
        self.padded = np.flatnonzero(np.isneginf(constant))
        self.soft_cap = manifest.soft_cap
        self.tables = BoundTables(
            arrays["mean"],
            bundle.map_array("bounds_change").copy(),
            arrays["factors"],
            arrays["scale"],
            constant,
            arrange_blocks(transpose_to_unsigned(bundle.map_array("bounds_columns"))),
        )
        self(np.zeros((1, dim), np.float32))

    @classmethod
    def open(cls, bundle: Bundle, arrays: dict[str, npt.NDArray[Any]], threads: int) -> Self | None:
        """Open the loops; None where the bundle has no arrays for them, or the processor not their instruction."""
        return cls(bundle, arrays, threads) if VNNI and bundle.has_arrays("bounds_change", "bounds_columns") else None

    def __call__(self, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return estimates [B, V] and spreads [B, 1] of `context` [B, d], all float32."""
        contexts = context if context.flags.carray else context.copy()
        count, (blocks, quads, *_) = len(contexts), self.tables.rows.shape
        estimates, spreads = np.empty((count, self.tables.scale.size), np.float32), np.empty((count, 1), np.float32)
        digits = np.zeros((count, 2, quads * LANE_BYTES), np.int8)
        steps, shifts = np.empty((count, 2), np.float32), np.empty((count, 2), np.int32)
        quantize_contexts(contexts, self.tables, digits, steps, shifts, spreads)
        self.threaded_rows(
            lambda some: estimate_logits(some[0], some[-1] + 1, self.tables, digits, steps, shifts, estimates),
            np.arange(blocks),
            size=count,
        )
        if self.soft_cap is not None:
            np.tanh(np.divide(estimates, np.float32(self.soft_cap), out=estimates), out=estimates)
            estimates *= np.float32(self.soft_cap)
            estimates[:, self.padded] = -np.inf
        return estimates, spreads


def transpose_to_unsigned(columns: npt.NDArray[np.int8]) -> Bytes:
    """Transpose int8 [d, V] to uint8 rows, padded with zeros to whole blocks and an even number of lines in each."""
    dim, classes = columns.shape
    rows = np.full((classes + -classes % LANES, dim + -dim % (2 * LANE_BYTES)), WEIGHT_ZERO_POINT, np.uint8)
    np.add(columns.T, WEIGHT_ZERO_POINT, out=rows[:classes, :dim], dtype=np.int16, casting="unsafe")
    return rows
