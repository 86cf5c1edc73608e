"""Hold an exported bundle, opened by the service's own runtime, against the dense layer computed here in torch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from shortlist.head import Head
from shortlist.legal import Legal
from shortlist.manifest import Quality
from shortlist.plans import Plan
from shortlist_models import FullSoftmax
from torch import nn

from .methods.base import Cost, FloatArray

DEPTH = 10  # exact classes known for each held-out context
CHUNK = 64
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
REPEATS = 7


@dataclass(frozen=True)
class Truth:
    """Exact answers: contexts [n, d], ids [n, m] int64, logprobs [n, m] float32, log_normalizer [n] float32.

    targets: [n] int64, the gold classes, where there are any.
    """

    contexts: FloatArray
    ids: npt.NDArray[np.int64]
    logprobs: FloatArray
    log_normalizer: FloatArray
    targets: npt.NDArray[np.int64] | None = None


def truth_of(
    reference: nn.Module,
    contexts: FloatArray,
    depth: int,
    progress: Callable[[int], None],
    targets: npt.NDArray[np.int64] | None = None,
) -> Truth:
    """Exact top `depth` of `contexts` [n, d] by the reference, in torch; `progress` gets rows done.

    reference: the dense layer, or a module with `log_prob`.
    """
    ids, logprobs, normalizers = [], [], []
    with torch.inference_mode():
        for chunk in torch.split(torch.from_numpy(contexts), CHUNK):
            logits = logits_of(reference, chunk)
            normalizer = logits.logsumexp(dim=1)
            best = logits.topk(depth, dim=1)
            ids.append(torch.where(best.values.isneginf(), -1, best.indices))
            logprobs.append(best.values - normalizer[:, None])
            normalizers.append(normalizer)
            progress(len(chunk))
    found, values, log_z = torch.cat(ids).numpy(), torch.cat(logprobs).numpy(), torch.cat(normalizers).numpy()
    return Truth(contexts, found, values, log_z, targets)


def logits_of(reference: nn.Module, contexts: torch.Tensor) -> torch.Tensor:
    """[B, d] -> [B, V] of the dense layer, or of a module with `log_prob`."""
    if isinstance(reference, FullSoftmax):
        return reference.logits(contexts)
    logprobs: torch.Tensor = reference.log_prob(contexts)  # type: ignore[operator]
    return logprobs


def precision(found: npt.NDArray[np.int64], true: npt.NDArray[np.int64], k: int) -> float:
    """P@k: share of the k true classes among the k found, mean over rows."""
    k = min(k, true.shape[1])
    hits = (found[:, :k, None] == true[:, None, :k]).any(axis=1)
    return float(hits.mean())


def measure(head: Head, reference: nn.Module, truth: Truth, cost: Cost, progress: Callable[[int], None]) -> Quality:
    """The figures that the manifest promises, through the plan alone (no dense fall-back by batch size)."""
    depth = truth.ids.shape[1]
    ids, errors = [], []
    for start in range(0, len(truth.contexts), CHUNK):
        rows = slice(start, start + CHUNK)
        top = head.topk_by_plan(truth.contexts[rows], depth)
        ids.append(top.ids)
        exact = exact_logprobs(reference, truth, rows, np.maximum(top.ids, 0))
        errors.append(np.abs(np.where(top.ids < 0, 0.0, top.logprobs) - np.where(top.ids < 0, 0.0, exact)))
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


def exact_logprobs(reference: nn.Module, truth: Truth, rows: slice, ids: npt.NDArray[np.int64]) -> FloatArray:
    """The reference's log-probabilities [b, m] of `ids` [b, m]."""
    classes, contexts = torch.from_numpy(ids), torch.from_numpy(truth.contexts[rows])
    with torch.inference_mode():
        if isinstance(reference, FullSoftmax):
            logits = some_logits(reference, contexts, classes)
        else:
            logits = logits_of(reference, contexts).gather(1, classes)
    exact: FloatArray = logits.numpy() - truth.log_normalizer[rows, None]
    return exact


def some_logits(dense: FullSoftmax, contexts: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """Logits [b, m] of `classes` [b, m] alone. Equals a gather from all logits, but without computing these."""
    products = torch.einsum("bmd,bd->bm", dense.weight[classes], contexts)
    return dense.finish(products if dense.bias is None else products + dense.bias[classes], classes)


def crossover(head: Head, contexts: FloatArray) -> int | None:
    """The smallest measured batch from which on the dense head is at least as fast as the plan; None if never."""
    if head.dense is None or head.dense is head.plan:
        return None
    found = None
    for batch in reversed([size for size in BATCHES if size <= len(contexts)]):
        if not dense_wins(head, contexts[:batch]):
            break
        found = batch
    return found


def dense_wins(head: Head, contexts: FloatArray) -> bool:
    """Medians of interleaved calls on the same rows."""
    assert head.dense is not None
    times: dict[str, list[float]] = {"plan": [], "dense": []}
    for _ in range(REPEATS):
        times["plan"].append(seconds(head, head.plan, contexts))
        times["dense"].append(seconds(head, head.dense, contexts))
    return float(np.median(times["dense"])) <= float(np.median(times["plan"]))


def seconds(head: Head, plan: Plan, contexts: FloatArray) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    head.run(plan, contexts, min(5, head.manifest.max_k), Legal())
    return time.perf_counter() - start
