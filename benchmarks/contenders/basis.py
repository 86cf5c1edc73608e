"""The vectors that an index is built on: weights as they are, or in the basis that contexts use.

`raw`: rows [w; b] and queries [h; 1]. `whitened`: with E[x x^T] = L L^T over such queries x and U S V^T the SVD of
rows @ L, rows become rows @ L V and queries V^T L^-1 x. Inner products stay what they are, squared distances and
quantisation errors become those that matter for contexts, and leading axes carry most. Products of ours gain by
the same change of basis (context-weighted SVD), hence peers get it too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from shortlist_exporter.inputs.sources import Dense
from shortlist_models.svd import context_basis

from .base import FloatArray, IdArray

BASES = ("raw", "whitened")


@dataclass(frozen=True)
class Basis:
    """rows: [m, D] float32 of classes `ids` [m]. change: [d or d + 1, D], or None. bias: whether there is one."""

    rows: FloatArray
    ids: IdArray
    change: FloatArray | None
    bias: bool

    @property
    def change_bytes(self) -> int:
        """Bytes of the change of basis, which every query needs."""
        return 0 if self.change is None else self.change.nbytes

    def queries(self, contexts: FloatArray) -> FloatArray:
        """[B, d] -> [B, D], C-contiguous float32."""
        rows = append_ones(contexts) if self.bias else contexts
        return rows if self.change is None else rows @ self.change

    def classes(self, positions: IdArray) -> IdArray:
        """Positions of rows -> class ids; -1 stays."""
        return np.where(positions < 0, -1, self.ids[positions])


LAST_BASIS: dict[tuple[str, bytes, bytes], Basis] = {}  # at most one: the builds of a sweep share it


def load_basis(kind: str, dense: Dense, contexts: FloatArray) -> Basis:
    """The basis `raw` or `whitened` of the layer's real classes (padding left out)."""
    key = (kind, dense.weight[::97].tobytes(), contexts[::997].tobytes())
    if key not in LAST_BASIS:
        LAST_BASIS.clear()
        LAST_BASIS[key] = compute_basis(kind, dense, contexts)
    return LAST_BASIS[key]


def compute_basis(kind: str, dense: Dense, contexts: FloatArray) -> Basis:
    """The basis that `load_basis` caches."""
    ids = np.setdiff1d(np.arange(dense.classes), dense.padded)
    rows = dense.weight if dense.bias is None else np.column_stack([dense.weight, dense.bias])
    rows = np.ascontiguousarray(rows[ids], np.float32)
    if kind == "raw":
        return Basis(rows, ids, None, dense.bias is not None)
    queries = contexts if dense.bias is None else append_ones(contexts)
    whitened = context_basis(torch.from_numpy(rows), torch.from_numpy(queries), rows.shape[1])
    return Basis(whitened.preview.numpy(), ids, whitened.projection.numpy(), dense.bias is not None)


def append_ones(contexts: FloatArray) -> FloatArray:
    """[B, d] -> [B, d + 1] with a last column of ones."""
    return np.column_stack([contexts, np.ones(len(contexts), np.float32)])


def lift_rows(rows: FloatArray) -> FloatArray:
    """[V, D] -> [V, D + 1] float32, all of the largest row's norm U: a last coordinate sqrt(U^2 - |x|^2).

    The largest inner products with queries that end in 0 are then the nearest neighbours (Bachrach et al. 2014).
    """
    squares = np.square(rows, dtype=np.float64).sum(axis=1)
    return np.column_stack([rows, np.sqrt(squares.max() - squares)]).astype(np.float32)


def lift_queries(queries: FloatArray) -> FloatArray:
    """[B, D] -> [B, D + 1] whose products with lifted rows are those with the rows."""
    return np.column_stack([queries, np.zeros(len(queries), np.float32)])


def rescore_candidates(dense: Dense, contexts: FloatArray, candidates: IdArray, k: int) -> IdArray:
    """The k best of `candidates` [B, m] (-1 pads) by exact scores, row by row; for contenders without their own."""
    best = np.full((len(contexts), k), -1, np.int64)
    for row, (context, ids) in enumerate(zip(contexts, candidates, strict=True)):
        real = ids[ids >= 0]
        scores = dense.weight[real] @ context
        if dense.bias is not None:
            scores += dense.bias[real]
        order = np.argsort(-scores, kind="stable")[:k]
        best[row, : order.size] = real[order]
    return best
