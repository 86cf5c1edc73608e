"""Exact logits of some classes by compiled loops: rows are multiplied where they are mapped, not copied together."""

from __future__ import annotations

from functools import partial
from typing import Self

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, IdArray
from shortlist.kernels.primitives.arrays import FLOAT_BYTES, as_carray
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.products import prefetch
from shortlist.kernels.primitives.sums import SUM_FLAGS, dot

ROWS_TOGETHER = 4  # rows multiplied at once: with one, the processor waits for memory half of the time
PREFETCH_BYTES = 512  # of each of the next rows; the processor guesses what follows


@compile_loop
def prefetch_rows(start: int, size: int, ids: IdArray) -> None:
    """Prefetch the first lines of some rows of `size` bytes each."""
    for row in ids:
        prefetch(start + row * size, min(PREFETCH_BYTES, size))


@compile_loop
def are_classes(ids: IdArray, classes: int) -> bool:
    """True if all of `ids` are 0 to `classes` - 1; others would be read beyond the array."""
    invalid = 0
    for class_id in ids.flat:
        invalid += int(class_id < 0 or class_id >= classes)
    return invalid == 0


@partial(compile_loop, fastmath=SUM_FLAGS)
def gather_products(rows: FloatArray, contexts: FloatArray, ids: IdArray, products: FloatArray) -> bool:
    """Write `products` [B, n] of `contexts` [B, d] and rows `ids` [B, n] of `rows` [V, d]; False for an invalid id."""
    if not are_classes(ids, len(rows)):
        return False
    start, size = rows.ctypes.data, FLOAT_BYTES * rows.shape[1]
    whole = ids.shape[1] - ids.shape[1] % ROWS_TOGETHER
    for row in range(len(ids)):
        row_ids, context = ids[row], contexts[row]
        for i in range(0, whole, ROWS_TOGETHER):
            prefetch_rows(start, size, row_ids[i + ROWS_TOGETHER : i + 2 * ROWS_TOGETHER])
            one, two, three, four = rows[row_ids[i]], rows[row_ids[i + 1]], rows[row_ids[i + 2]], rows[row_ids[i + 3]]
            a, b, c, d = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for j in range(context.size):
                a += one[j] * context[j]
                b += two[j] * context[j]
                c += three[j] * context[j]
                d += four[j] * context[j]
            products[row, i], products[row, i + 1], products[row, i + 2], products[row, i + 3] = a, b, c, d
        for i in range(whole, row_ids.size):
            products[row, i] = dot(rows[row_ids[i]], context)
    return True


class CompiledGather:
    """Exact logits, equal to rows.onnx but for the order of float32 sums. Threads may share it."""

    def __init__(self, weight: FloatArray, logit_scale: float = 1.0, soft_cap: float | None = None) -> None:
        """Compile the loops, which takes seconds where they are not cached. weight: [V, d] float32."""
        self.weight, self.logit_scale, self.soft_cap = weight, logit_scale, soft_cap
        self.bias: FloatArray | None = None
        self.padding: FloatArray | None = None
        self(np.zeros((1, weight.shape[1]), np.float32), np.zeros((1, 1), np.int64))

    @classmethod
    def open(cls, bundle: Bundle) -> Self | None:
        """Open the loops over a bundle's rows; None where it is so small that its graphs hold their weights."""
        if not bundle.has_arrays("exact_weight"):
            return None
        manifest = bundle.manifest
        loops = cls(bundle.map_array("exact_weight"), manifest.logit_scale, manifest.soft_cap)
        loops.bias, loops.padding = (
            bundle.map_array(role) if bundle.has_arrays(role) else None for role in ("exact_bias", "exact_padding")
        )
        return loops

    def __call__(self, contexts: FloatArray, ids: IdArray) -> FloatArray:
        """Return logits [B, n] float32 of `contexts` [B, d] and `ids` [B, n]; raises IndexError for an invalid id."""
        logits = np.empty(ids.shape, np.float32)
        if not gather_products(self.weight, as_carray(contexts), as_carray(ids), logits):
            raise IndexError(f"ids must be 0 to {len(self.weight) - 1}")
        with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
            return self.finish_logits(logits, ids)

    def finish_logits(self, logits: FloatArray, ids: IdArray) -> FloatArray:
        """Apply bias, logit scale, soft-cap and padding to logits [B, n], in place."""
        if self.bias is not None:
            logits += self.bias[ids]
        if self.logit_scale != 1.0:
            logits *= np.float32(self.logit_scale)
        if self.soft_cap is not None:
            logits /= np.float32(self.soft_cap)
            np.tanh(logits, out=logits)
            logits *= np.float32(self.soft_cap)
        if self.padding is not None:
            logits += self.padding[ids]
        return logits
