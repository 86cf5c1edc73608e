"""Hold an exported bundle, opened by the service's own runtime, against its reference computed here in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from shortlist.bundle.list_costs import ListCosts
from shortlist.bundle.manifest import Certificate, KindQuality, Quality
from shortlist.bundle.settings import GroupedSettings, PlanSettings
from shortlist.core.results import IdArray, TopK
from shortlist.evaluation.ranking import Bools
from shortlist.evaluation.statistics import PRECISION_DEPTHS, mark_hits
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


def answer_held_out(
    head: Head, contexts: FloatArray, depths: Iterable[int], progress: Callable[[int], None]
) -> dict[int, TopK]:
    """The plan's answers (no dense fall-back by batch size) to requests for each k of `depths`, by k.

    contexts: [n, d]. progress: gets rows done. `TRUE_CLASSES` are asked for besides, those whose P@k are always
    reported, and of no more than `max_k`.
    """
    ks = sorted({min(k, head.manifest.max_k) for k in (*PRECISION_DEPTHS, TRUE_CLASSES, *depths)})
    parts = []
    for start in range(0, len(contexts), TRUTH_CHUNK_ROWS):
        rows = contexts[start : start + TRUTH_CHUNK_ROWS]
        parts.append({k: head.topk_by_plan(rows, k) for k in ks})
        progress(len(rows))
    return {k: TopK.concat([part[k] for part in parts]) for k in ks}


def measure_quality(
    answers: Mapping[int, TopK],
    reference: nn.Module,
    truth: Truth,
    kinds: Mapping[str, IdArray],
    cost: Cost,
    at: Sequence[int] = (),
) -> Quality:
    """The figures that the manifest promises. P@k is of requests for k, log-probabilities of the request for ten.

    answers: by k, as of `answer_held_out`. truth: of the reference. kinds: of text, positions of their rows in it.
    at: each further k whose P@k is measured.
    """
    hits = {k: mark_depth(answers, truth, k) for k in {*PRECISION_DEPTHS, *at}}
    precision = {k: float(marks.mean()) for k, marks in hits.items()}
    top = answers[min(TRUE_CLASSES, max(answers))]
    error, best_first = measure_errors(top, reference, truth), mark_hits(top.ids, truth.best, 1)[:, 0]
    return Quality(
        rows=len(truth.contexts),
        p_at_1=precision[1],
        p_at_5=precision[5],
        p_at_10=precision[10],
        p_at={k: precision[k] for k in at},
        logprob_error_mean=float(error.mean()),
        logprob_error_p99=float(np.quantile(error, 0.99)),
        logprob_error_hits_mean=float(error[best_first].mean()) if best_first.any() else None,
        logprob_error_hits_p99=float(np.quantile(error[best_first], 0.99)) if best_first.any() else None,
        cost_macs=cost.macs,
        cost_bytes=cost.bytes,
        kinds=measure_kinds(hits[1], hits[5], kinds),
    )


def add_dense_rows(cost: Cost, settings: PlanSettings, top: TopK, classes: int) -> Cost:
    """`cost`, and the dense layer's for the share of the rows of `top` that it answered after a search that promises.

    classes: V. Costs of other methods hold what dense answers, or it answers nothing by itself. A search whose full
    view is all classes scores them itself.
    """
    if not isinstance(settings, GroupedSettings) or settings.promise is None or settings.full_view >= classes:
        return cost
    share = float((top.scored == classes).mean())
    return Cost(macs=cost.macs + share, bytes=cost.bytes + share)


def mark_depth(answers: Mapping[int, TopK], truth: Truth, k: int) -> Bools:
    """[n, k]: hits of the request for k, or for the largest k that the head serves."""
    return mark_hits(answers[min(k, max(answers))].ids, truth.best, k)


def measure_errors(top: TopK, reference: nn.Module, truth: Truth) -> FloatArray:
    """[n, k]: |error| of the log-probabilities of `top`, nats; 0 beside an id of -1."""
    ids, starts = np.maximum(top.ids, 0), range(0, len(top.ids), TRUTH_CHUNK_ROWS)
    chunks = [slice(start, start + TRUTH_CHUNK_ROWS) for start in starts]
    exact = np.concatenate([compute_logprobs(reference, truth, rows, ids[rows]) for rows in chunks])
    error: FloatArray = np.abs(np.where(top.ids < 0, 0.0, top.logprobs) - np.where(top.ids < 0, 0.0, exact))
    return error


def measure_kinds(first: Bools, five: Bools, kinds: Mapping[str, IdArray]) -> dict[str, KindQuality]:
    """P@1 and P@5 by kind of text. first: [n, 1], five: [n, 5], hits of each row. kinds: positions of their rows."""
    return {
        name: KindQuality(rows=len(rows), p_at_1=float(first[rows].mean()), p_at_5=float(five[rows].mean()))
        for name, rows in kinds.items()
    }


def measure_list_costs(head: Head, contexts: FloatArray) -> ListCosts | None:
    """What the ways to answer rows with lists cost, by contexts [n, d]; None where there is one way."""
    if head.ways is None or head.exact_rows is None:
        return None
    exact = head.plan.find_exact(TIMED_K)
    return measure_costs(head.plan, head.exact_rows, exact, head.manifest.classes, contexts)


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
