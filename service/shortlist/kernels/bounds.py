"""The graph bounds.onnx by the native library: an estimate of every logit from int8 rows, and a bound on its error.

Results equal the graph's but for rounding, which may move a digit, and take less time: rows are read at the speed of
memory, not at that of an operator's kernel. Sums of bytes are exact in both. Float operations are those that the
exporter's `certificate` accounts for, in blocks of the same size.
"""

from __future__ import annotations

from ctypes import Structure, byref, c_int64, c_void_p
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray
from shortlist.runtime.parallel import ThreadedRows

from .native.arguments import get_address, point_at
from .native.library import open_kernels, require_kernels
from .primitives.arrays import as_carray
from .primitives.layout import LANE_BYTES, LANES, WEIGHT_ZERO_POINT, Bytes, arrange_blocks

FLOAT_TABLES = "mean", "change", "factors", "scale", "constant"


class BoundsStruct(Structure):
    """`struct bounds` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [
        *((name, c_void_p) for name in (*FLOAT_TABLES, "rows")),
        *((name, c_int64) for name in ("dim", "block_rows", "classes", "lines")),
    ]


class CompiledBounds:
    """Bounds on all logits, called as the graph is. Threads may share it."""

    def __init__(self, bundle: Bundle, arrays: dict[str, npt.NDArray[Any]], threads: int) -> None:
        """Lay out the rows. Raises NoLibrary.

        arrays: of certificate.safetensors. threads: that may share a call.
        """
        self.kernels, self.threaded_rows = require_kernels(), ThreadedRows(threads)
        self.dim, self.soft_cap = bundle.manifest.dim, bundle.manifest.soft_cap
        self.padded = np.flatnonzero(np.isneginf(arrays["constant"]))
        self.rows = arrange_blocks(transpose_to_unsigned(bundle.map_array("bounds_columns")))
        self.tables = {name: arrays[name] for name in FLOAT_TABLES if name != "change"}
        self.tables["change"] = bundle.map_array("bounds_change").copy()
        addresses = {name: get_address(table, np.float32, name) for name, table in self.tables.items()}
        sizes = self.dim, len(self.tables["change"]), arrays["scale"].size, self.rows.shape[1]
        rows = get_address(self.rows, np.uint8, "rows")
        self.struct = BoundsStruct(*(addresses[name] for name in FLOAT_TABLES), rows, *sizes)

    @classmethod
    def open(cls, bundle: Bundle, arrays: dict[str, npt.NDArray[Any]], threads: int) -> Self | None:
        """Open the loops; None without a library, and where the bundle has no arrays for them."""
        has_arrays = bundle.has_arrays("bounds_change", "bounds_columns")
        return cls(bundle, arrays, threads) if has_arrays and open_kernels() is not None else None

    def __call__(self, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return estimates [B, V] and spreads [B, 1] of `context` [B, d], all float32."""
        count = len(context)
        estimates, spreads = np.empty((count, self.struct.classes), np.float32), np.empty((count, 1), np.float32)
        if count:
            self.fill(as_carray(context), estimates, spreads)
        if self.soft_cap is not None:
            np.tanh(np.divide(estimates, np.float32(self.soft_cap), out=estimates), out=estimates)
            estimates *= np.float32(self.soft_cap)
            estimates[:, self.padded] = -np.inf
        return estimates, spreads

    def fill(self, contexts: FloatArray, estimates: FloatArray, spreads: FloatArray) -> None:
        """Split the contexts into digits, then write the estimates, by several threads where they are worth that."""
        count, (blocks, lines, *_), struct = len(contexts), self.rows.shape, byref(self.struct)
        digits = np.zeros((count, 2, lines * LANE_BYTES), np.int8)
        steps, shifts = np.empty((count, 2), np.float32), np.empty((count, 2), np.int32)
        parts = point_at(digits), point_at(steps), point_at(shifts)
        if not self.kernels.quantize_contexts(struct, point_at(contexts), count, *parts, point_at(spreads)):
            raise MemoryError("there is no memory for a context in another basis")
        arguments = struct, *parts, point_at(estimates), count
        self.threaded_rows(
            lambda some: self.kernels.estimate_logits(*arguments, int(some[0]), int(some[-1]) + 1),
            np.arange(blocks),
            size=count,
        )


def transpose_to_unsigned(columns: npt.NDArray[np.int8]) -> Bytes:
    """Transpose int8 [d, V] to uint8 rows, padded with zeros to whole blocks and an even number of lines in each."""
    dim, classes = columns.shape
    rows = np.full((classes + -classes % LANES, dim + -dim % (2 * LANE_BYTES)), WEIGHT_ZERO_POINT, np.uint8)
    np.add(columns.T, WEIGHT_ZERO_POINT, out=rows[:classes, :dim], dtype=np.int16, casting="unsafe")
    return rows
