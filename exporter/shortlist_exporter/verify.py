"""Hold an exported bundle, opened by the service's own runtime, against the dense layer computed here in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from shortlist.head import Head
from shortlist.manifest import Quality
from shortlist_models import FullSoftmax

from .methods.base import Cost, FloatArray

DEPTH = 10  # exact classes known for each held-out context
CHUNK = 64


@dataclass(frozen=True)
class Truth:
    """Exact answers: contexts [n, d], ids [n, m] int64, logprobs [n, m] float32, log_normalizer [n] float32."""

    contexts: FloatArray
    ids: npt.NDArray[np.int64]
    logprobs: FloatArray
    log_normalizer: FloatArray


def truth_of(dense: FullSoftmax, contexts: FloatArray, depth: int, progress: Callable[[int], None]) -> Truth:
    """Exact top `depth` of `contexts` [n, d] by the dense layer, in torch; `progress` gets rows done."""
    count = len(contexts)
    ids = torch.empty(count, depth, dtype=torch.int64)  # filled in place: small results kept between the large
    logprobs, normalizers = torch.empty(count, depth), torch.empty(count)  # logits of chunks would split the heap
    with torch.inference_mode():
        for start in range(0, count, CHUNK):
            rows = slice(start, min(start + CHUNK, count))
            logits = dense.logits(torch.from_numpy(contexts[rows]))
            normalizers[rows] = logits.logsumexp(dim=1)
            best = logits.topk(depth, dim=1)
            ids[rows] = best.indices
            logprobs[rows] = best.values - normalizers[rows, None]
            progress(rows.stop - start)
    return Truth(contexts, ids.numpy(), logprobs.numpy(), normalizers.numpy())


def precision(found: npt.NDArray[np.int64], true: npt.NDArray[np.int64], k: int) -> float:
    """P@k: share of the k true classes among the k found, mean over rows."""
    k = min(k, true.shape[1])
    hits = (found[:, :k, None] == true[:, None, :k]).any(axis=1)
    return float(hits.mean())


def measure(head: Head, dense: FullSoftmax, truth: Truth, cost: Cost, progress: Callable[[int], None]) -> Quality:
    """The figures that the manifest promises, through the plan alone (no dense fall-back by batch size)."""
    depth = truth.ids.shape[1]
    ids, errors = [], []
    for start in range(0, len(truth.contexts), CHUNK):
        rows = slice(start, start + CHUNK)
        top = head.topk_by_plan(truth.contexts[rows], depth)
        ids.append(top.ids)
        errors.append(np.abs(top.logprobs - exact_logprobs(dense, truth, rows, top.ids)))
        progress(len(top.ids))
    found, error = np.concatenate(ids), np.concatenate(errors)
    return Quality(
        rows=len(found),
        p_at_1=precision(found, truth.ids, 1),
        p_at_5=precision(found, truth.ids, 5),
        p_at_10=precision(found, truth.ids, 10),
        logprob_error_mean=float(error.mean()),
        logprob_error_p99=float(np.quantile(error, 0.99)),
        cost_macs=cost.macs,
        cost_bytes=cost.bytes,
    )


def exact_logprobs(dense: FullSoftmax, truth: Truth, rows: slice, ids: npt.NDArray[np.int64]) -> FloatArray:
    """The dense layer's log-probabilities [b, m] of `ids` [b, m]."""
    classes = torch.from_numpy(ids)
    with torch.inference_mode():
        products = torch.einsum("bmd,bd->bm", dense.weight[classes], torch.from_numpy(truth.contexts[rows]))
        biased = products if dense.bias is None else products + dense.bias[classes]
        logits = dense.finish(biased, classes)
    exact: FloatArray = logits.numpy() - truth.log_normalizer[rows, None]
    return exact
