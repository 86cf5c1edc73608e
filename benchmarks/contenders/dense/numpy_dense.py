"""The dense layer in numpy: what the papers' single-thread baselines are."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from shortlist.plans.common.selection import rank_best
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options


class NumpyDense(Contender):
    """weight @ context, then a partition."""

    name: ClassVar[str] = "dense, numpy"

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """The two layouts of the weights."""
        return [{"layout": layout} for layout in ("rows", "columns")]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        del contexts
        self.columns = dense.weight.T if self.build["layout"] == "rows" else np.ascontiguousarray(dense.weight.T)
        self.bias = dense.bias
        self.padded = dense.padded

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        logits = contexts @ self.columns
        if self.bias is not None:
            logits += self.bias
        logits[:, self.padded] = -np.inf
        return np.stack([rank_best(row, k) for row in logits])

    def size(self) -> int:
        return self.columns.nbytes
