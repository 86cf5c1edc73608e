"""The dense layer in ONNX Runtime with a numpy top-k, as every peer serves it. Runs in the peers' environments.

DENSE_ONNX: the graph, `context` [B, d] -> `logits` [B, V]. DENSE_K: classes in an answer.
"""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
import onnxruntime

DENSE_K = int(os.environ.get("DENSE_K", "10"))
MAX_BATCH_ROWS = 16  # most rows at a time
MAX_MAPPED_ROWS = 1  # of which a product over unpacked, mapped weights is faster: what our own server does too


class DenseTopK:
    """contexts [B, d] -> ids [B, k] int64, log-probabilities [B, k] float32."""

    def __init__(self) -> None:
        """Open the graph twice, with one thread: for few rows, and prepacked for many."""
        self.few, self.many = session("1"), session("0")

    def __call__(self, contexts: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """The k best classes of each row."""
        run = self.few if len(contexts) <= MAX_MAPPED_ROWS else self.many
        logits = run.run(["logits"], {"context": contexts})[0]
        best = np.argpartition(logits, -DENSE_K, axis=1)[:, -DENSE_K:]
        best_logits = np.take_along_axis(logits, best, axis=1)
        order = np.argsort(-best_logits, axis=1, kind="stable")
        ids = np.take_along_axis(best, order, axis=1).astype(np.int64)
        peak = logits.max(axis=1, keepdims=True)
        normalizer = peak + np.log(np.exp(logits - peak).sum(axis=1, keepdims=True))
        return ids, (np.take_along_axis(best_logits, order, axis=1) - normalizer).astype(np.float32)


def session(disable_prepacking: str) -> onnxruntime.InferenceSession:
    """One thread, no spinning: the settings of our own server."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.disable_prepacking", disable_prepacking)
    return onnxruntime.InferenceSession(os.environ["DENSE_ONNX"], options, providers=["CPUExecutionProvider"])
