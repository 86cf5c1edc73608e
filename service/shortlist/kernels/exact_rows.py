"""Exact logits of some classes by the native library, which multiplies rows where they are mapped."""

from __future__ import annotations

from ctypes import Structure, byref, c_float, c_int64, c_void_p
from math import ceil
from typing import Self

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, IdArray
from shortlist.runtime.parallel import ThreadedRows

from .native.arguments import get_address, point_at
from .native.library import open_kernels, require_kernels
from .primitives.arrays import as_carray

PART_CLASSES = 64  # scored by one thread before it looks whether others took what is left


class ExactRowsTable(Structure):
    """`struct exact_rows` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [
        *((name, c_void_p) for name in ("weight", "bias", "padding")),
        *((name, c_int64) for name in ("classes", "dim")),
        *((name, c_float) for name in ("logit_scale", "soft_cap")),
    ]


class CompiledGather:
    """Exact logits, equal to rows.onnx but for the order of float32 sums. Threads may share it."""

    def __init__(
        self,
        weight: FloatArray,
        logit_scale: float = 1.0,
        soft_cap: float | None = None,
        bias: FloatArray | None = None,
        padding: FloatArray | None = None,
        threads: int = 1,
    ) -> None:
        """Take the addresses of weight [V, d], and of bias and padding [V] where there are; all float32.

        threads: that may share a call. Raises NoLibrary.
        """
        self.kernels, self.threaded_rows = require_kernels(), ThreadedRows(threads)
        self.arrays = weight, bias, padding  # must live as long as their addresses are used
        names = "weight", "bias", "padding"
        addresses = [get_address(array, np.float32, name) for array, name in zip(self.arrays, names, strict=True)]
        self.struct = ExactRowsTable(*addresses, *weight.shape, logit_scale, soft_cap or 0.0)
        self.table = byref(self.struct)

    @classmethod
    def open(cls, bundle: Bundle, threads: int) -> Self | None:
        """Map a bundle's rows; None without a library, and for a layer so small that its graphs hold their weights."""
        if open_kernels() is None or not bundle.has_arrays("exact_weight"):
            return None
        bias, padding = (
            bundle.map_array(role) if bundle.has_arrays(role) else None for role in ("exact_bias", "exact_padding")
        )
        return cls(bundle.map_array("exact_weight"), *bundle.finishing, bias, padding, threads)

    def __call__(self, contexts: FloatArray, ids: IdArray) -> FloatArray:
        """Return logits [B, n] float32 of `contexts` [B, d] and `ids` [B, n]; raises IndexError for an invalid id."""
        logits = np.empty(ids.shape, np.float32)
        if logits.size:
            self.fill(as_carray(contexts), as_carray(ids), logits)
        return logits

    def fill(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> None:
        """Write the logits, by several threads where they are worth that."""
        size, count = logits.size, logits.shape[1]
        arrays = point_at(contexts), point_at(ids), point_at(logits)

        def fill_parts(first: int, last: int) -> None:
            self.fill_items(*arrays, count, PART_CLASSES * first, min(PART_CLASSES * last, size))

        if self.threaded_rows.threads < 2 or size <= PART_CLASSES:  # straight, since few rows take microseconds
            self.fill_items(*arrays, count, 0, size)
        else:
            self.threaded_rows(fill_parts, ceil(size / PART_CLASSES))

    def fill_items(self, *arguments: object) -> None:
        if not self.kernels.score_exactly(self.table, *arguments):
            raise IndexError(f"ids must be 0 to {len(self.arrays[0]) - 1}")
