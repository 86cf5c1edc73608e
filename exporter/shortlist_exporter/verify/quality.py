"""Hold an exported bundle, opened by the service's own runtime, against its reference computed here in torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from shortlist.bundle.manifest import Certificate, KindQuality, Quality
from shortlist.bundle.settings import ListCosts
from shortlist.core.results import IdArray
from shortlist.evaluation.ranking import Bools
from shortlist.evaluation.statistics import compute_precision, mark_hits
from shortlist.evaluation.truth import TRUTH_CHUNK_ROWS, Truth
from shortlist.head import Head
from shortlist.plans.common.list_costs import TIMED_K, measure_costs
from torch import nn

from shortlist_exporter.core.torch_scores import compute_logprobs
from shortlist_exporter.core.types import Cost, FloatArray

TRUE_CLASSES = 10  # exact classes that are kept of each held-out context
BOUNDED_ROWS = 512  # held-out contexts by which the certificate's bound is set
BOUNDED_K = 5  # classes asked for of each
MAX_BOUND_NATS, MIN_BOUND_NATS = 1.0, 1e-5  # of the error of certified log-probabilities
BOUND_MARGIN = 1.1  # factor from the largest error that was met to the bound


def measure_quality(
    head: Head,
    reference: nn.Module,
    truth: Truth,
    kinds: Mapping[str, IdArray],
    cost: Cost,
    progress: Callable[[int], None],
) -> Quality:
    """The figures that the manifest promises, through the plan alone (no dense fall-back by batch size).

    truth: of the reference. kinds: of text, positions of their rows in it. progress: gets rows done.
    """
    depth = truth.ids.shape[1]
    ids, errors = [], []
    for start in range(0, len(truth.contexts), TRUTH_CHUNK_ROWS):
        rows = slice(start, start + TRUTH_CHUNK_ROWS)
        top = head.topk_by_plan(truth.contexts[rows], depth)
        ids.append(top.ids)
        exact = compute_logprobs(reference, truth, rows, np.maximum(top.ids, 0))
        errors.append(np.abs(np.where(top.ids < 0, 0.0, top.logprobs) - np.where(top.ids < 0, 0.0, exact)))
        progress(len(top.ids))
    all_ids, error = np.concatenate(ids), np.concatenate(errors)
    first, five = (mark_hits(all_ids, truth.best, k) for k in (1, 5))
    hits = first[:, 0]
    return Quality(
        rows=len(all_ids),
        p_at_1=float(first.mean()),
        p_at_5=float(five.mean()),
        p_at_10=compute_precision(all_ids, truth.best, 10),
        logprob_error_mean=float(error.mean()),
        logprob_error_p99=float(np.quantile(error, 0.99)),
        logprob_error_hits_mean=float(error[hits].mean()) if hits.any() else None,
        logprob_error_hits_p99=float(np.quantile(error[hits], 0.99)) if hits.any() else None,
        cost_macs=cost.macs,
        cost_bytes=cost.bytes,
        kinds=measure_kinds(first, five, kinds),
    )


def measure_kinds(first: Bools, five: Bools, kinds: Mapping[str, IdArray]) -> dict[str, KindQuality]:
    """P@1 and P@5 by kind of text. first: [n, 1], five: [n, 5], hits of each row. kinds: positions of their rows."""
    return {
        name: KindQuality(rows=len(rows), p_at_1=float(first[rows].mean()), p_at_5=float(five[rows].mean()))
        for name, rows in kinds.items()
    }


def measure_depths(head: Head, truth: Truth, depths: Sequence[int]) -> dict[int, float]:
    """P@k of requests for k classes, by k. truth: with the largest of the `depths` at least."""
    return {k: compute_precision(head.topk_by_plan(truth.contexts, k).ids, truth.best, k) for k in depths}


def measure_list_costs(head: Head, contexts: FloatArray) -> ListCosts | None:
    """What the ways to answer rows with lists cost, by contexts [n, d]; None where there is one way."""
    if head.ways is None or head.rows is None:
        return None
    exact = head.plan.find_exact(TIMED_K)
    return measure_costs(head.plan, head.rows, exact, head.manifest.classes, contexts)


def measure_certificate(head: Head, contexts: FloatArray, *, fallback: bool) -> Certificate | None:
    """What certified answers may promise, by contexts [n, d] that were held out; None where there are none.

    The bound on log-probabilities is the largest error that was met times `BOUND_MARGIN`, but at most
    `MAX_BOUND_NATS`. fallback: whether dense may answer large requests.
    """
    plan = head.certified
    if plan is None:
        return None
    rows = contexts[:BOUNDED_ROWS]
    measured = [plan.measure_error(row, min(BOUNDED_K, head.manifest.max_k)) for row in rows]
    errors, scored = (np.array(column) for column in zip(*measured, strict=True))
    met = errors[np.isfinite(errors)]
    bound = min(MAX_BOUND_NATS, BOUND_MARGIN * float(met.max(initial=0.0)) + MIN_BOUND_NATS)
    decided = np.nan_to_num(errors, nan=np.inf) <= bound
    return Certificate(
        logprob_bound=bound,
        rows=len(rows),
        rescored=float(scored[decided].mean()) if decided.any() else 0.0,
        dense_share=float(1 - decided.mean()),
        dense_crossover=head.measure_crossover(plan, contexts) if fallback else None,
    )
