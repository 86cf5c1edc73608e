"""Exact logits of given classes: by rows.onnx, or on a CPU by compiled loops."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, IdArray
from shortlist.kernels.exact_rows import CompiledGather
from shortlist.runtime.session import Graph

GATHER_BYTES = 2 << 20  # weights gathered by one call of rows.onnx: half a second-level cache and more is slower
DEVICE_GATHER_BYTES = 256 << 20


class DoubleRows:
    """Logits of given classes in float64, from the float32 weights as they are mapped. Threads may share it."""

    def __init__(self, bundle: Bundle) -> None:
        self.weight: FloatArray = bundle.map_array("exact_weight")
        self.bias, self.padding = (
            bundle.map_array(role) if bundle.has_arrays(role) else None for role in ("exact_bias", "exact_padding")
        )
        self.logit_scale, self.soft_cap = bundle.finishing

    def score_row(self, context: FloatArray, ids: IdArray) -> npt.NDArray[np.float64]:
        """Logits [n] of `ids` [n] for one `context` [d]; equal rows give equal bits."""
        logits: npt.NDArray[np.float64] = (self.weight[ids] * context.astype(np.float64)).sum(axis=1)
        if self.bias is not None:
            logits += self.bias[ids]
        logits *= self.logit_scale
        if self.soft_cap is not None:
            logits = self.soft_cap * np.tanh(logits / self.soft_cap)
        return logits if self.padding is None else logits + self.padding[ids]


class ExactRows:
    """Over rows.onnx, `context` [B, d], `ids` [B, n] -> `logits` [B, n], or what equals it. Threads may share it.

    Equal rows get equal logits, wherever they stand in the list. double: the same in float64; None for a layer so small
    that its graphs hold their weights.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the loops where they are, else the graph."""
        budget = GATHER_BYTES if device == "cpu" else DEVICE_GATHER_BYTES
        self.gather_classes = max(1, budget // (4 * bundle.manifest.dim))
        self.loops = CompiledGather.open(bundle, threads) if device == "cpu" else None
        self.graph = Graph(bundle.graph("rows"), device, threads) if self.loops is None else None
        self.double = DoubleRows(bundle) if bundle.has_arrays("exact_weight") else None

    def __call__(self, contexts: FloatArray, ids: IdArray) -> FloatArray:
        """Logits [B, n] of `ids` [B, n], each row's own, for `contexts` [B, d]; padding has -inf."""
        return self.score_by_graph(contexts, ids) if self.loops is None else self.loops(contexts, ids)

    def score_row(self, context: FloatArray, ids: IdArray) -> FloatArray:
        """Logits [n] of `ids` [n] for one `context` [d]."""
        logits: FloatArray = self(context[None], ids[None])[0]
        return logits

    def score_by_graph(self, contexts: FloatArray, ids: IdArray) -> FloatArray:
        """Logits of `ids` by rows.onnx; some at a time, so that what is gathered stays in the cache."""
        assert self.graph is not None
        classes = max(1, ids.shape[1])
        rows, classes = max(1, self.gather_classes // classes), min(self.gather_classes, classes)
        logits = np.empty(ids.shape, np.float32)
        for row in range(0, len(ids), rows):
            for i in range(0, ids.shape[1], classes):
                some = np.s_[row : row + rows, i : i + classes]
                logits[some] = self.graph(context=contexts[row : row + rows], ids=ids[some])[0]
        return logits
