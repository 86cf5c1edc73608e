"""Hold an exported bundle, opened by the service's own runtime, against the dense layer computed here in torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from shortlist.bundle.manifest import Certificate, Quality
from shortlist.core.filters import ClassFilter
from shortlist.core.results import empty_result
from shortlist.head import Head
from shortlist.plans.registry import CertifiedPlan
from shortlist_models import FullSoftmax
from torch import nn

from shortlist_exporter.core.types import Cost, FloatArray

DEPTH = 10  # exact classes known for each held-out context
CHUNK = 64
CERTIFIED_ROWS = 512
LOOSEST, LEAST, SPARE = 1.0, 1e-5, 1.1  # nats, nats, factor: of the bound on certified log-probabilities


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
    count = len(contexts)
    ids = torch.empty(count, depth, dtype=torch.int64)  # filled in place: small results kept between the large
    logprobs, normalizers = torch.empty(count, depth), torch.empty(count)  # logits of chunks would split the heap
    with torch.inference_mode():
        for start in range(0, count, CHUNK):
            rows = slice(start, min(start + CHUNK, count))
            logits = logits_of(reference, torch.from_numpy(contexts[rows]))
            normalizers[rows] = logits.logsumexp(dim=1)
            best = logits.topk(depth, dim=1)
            ids[rows] = torch.where(best.values.isneginf(), -1, best.indices)
            logprobs[rows] = best.values - normalizers[rows, None]
            progress(rows.stop - start)
    return Truth(contexts, ids.numpy(), logprobs.numpy(), normalizers.numpy(), targets)


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


def certificate_of(head: Head, contexts: FloatArray, *, fallback: bool) -> Certificate | None:
    """What certified answers may promise, by contexts [n, d] that were held out; None where there are none.

    The bound on log-probabilities is the largest that was met, with a tenth to spare, but at most `LOOSEST`.
    """
    plan = head.certified
    if plan is None:
        return None
    rows = contexts[:CERTIFIED_ROWS]
    errors, scored = zip(*(certified_row(plan, row[None], min(5, head.manifest.max_k)) for row in rows), strict=True)
    met = np.array(errors)[np.isfinite(errors)]
    bound = min(LOOSEST, SPARE * float(met.max(initial=0.0)) + LEAST)
    decided = np.nan_to_num(np.array(errors), nan=np.inf) <= bound
    return Certificate(
        logprob_bound=bound,
        rows=len(rows),
        rescored=float(np.array(scored)[decided].mean()) if decided.any() else 0.0,
        dense_share=float(1 - decided.mean()),
        dense_crossover=head.measure_crossover(plan, contexts) if fallback else None,
    )


def certified_row(plan: CertifiedPlan, context: FloatArray, k: int) -> tuple[float, int]:
    """By how many nats the log-normaliser of `context` [1, d] may be off, NaN where undecided; and classes rescored."""
    result = empty_result(1, k)
    estimates, spreads = plan.bounds(context=context)
    _, error = plan.search_row(context[0], estimates[0], float(spreads[0, 0]), ClassFilter(), 0, result)
    return error, int(result.scored[0])
