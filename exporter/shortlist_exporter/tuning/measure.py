"""One head on one split, beside dense in the same blocks: its times, and the precision of the timed answers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from shortlist.core.results import DoubleArray, IdArray, TopK
from shortlist.evaluation.statistics import DEVIATIONS_95, estimate_precision
from shortlist.evaluation.timing import CallTimes, time_calls
from shortlist.evaluation.truth import TRUTH_CHUNK_ROWS, Truth
from shortlist.head import Head
from shortlist_models import FullSoftmax

from shortlist_exporter.core.torch_scores import compute_logprobs
from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.records.tuning import Promise, SplitFigures

DENSE_CALLS = 128  # of dense in a measurement, about: enough for its mean, and not most of the time


@dataclass
class Answers:
    """Calls of one head, and all that they returned; the timing keeps the ids alone."""

    head: Head
    k: int
    tops: list[TopK] = field(default_factory=list)

    def __call__(self, rows: FloatArray) -> IdArray:
        """Ids [b, k] of one call: a `timing.Call`."""
        top = self.head.topk(rows, self.k)
        self.tops.append(top)
        return top.ids

    def last(self, calls: int) -> TopK:
        """The answers of the last `calls` calls: those before them warmed up."""
        return TopK.concat(self.tops[-calls:])


def measure_head(
    answers: Answers, dense_answers: Answers, dense: FullSoftmax, truth: Truth, promise: Promise
) -> SplitFigures:
    """A head over all rows of `truth` in requests of the promise's batch; rows that fill no batch are left out."""
    calls = len(truth.contexts) // promise.batch
    every = {"dense": max(1, calls // DENSE_CALLS)}
    times = time_calls({"head": answers, "dense": dense_answers}, truth.contexts, promise.batch, every=every)
    top = answers.last(calls)
    errors = measure_row_errors(dense, truth, top.ids, top.logprobs)
    true, head = truth.best.first_rows(len(top.ids)), answers.head
    return SplitFigures(
        rows=len(top.scored),
        precision={
            k: estimate_precision(answer_k(answers.head, truth, top.ids, k), true, k) for k in promise.precision
        },
        logprob_error=float(errors.mean()),
        logprob_error_high=float(errors.mean() + DEVIATIONS_95 * errors.std() / np.sqrt(len(errors))),
        scored=float(top.scored.mean()),
        dense_share=float((top.scored == head.manifest.classes).mean()),
        **compare_times(times["head"], times["dense"]),
    )


def compare_times(head: CallTimes, dense: CallTimes) -> dict[str, float]:
    """Times in microseconds a call, and how many times as fast as dense: fields of `SplitFigures`."""
    us, dense_us = head.summarize(), dense.summarize()
    return {
        "us": us["mean"],
        "us_p99": us["p99"],
        "dense_us": dense_us["mean"],
        "speedup": dense_us["mean"] / us["mean"],
    }


def answer_k(head: Head, truth: Truth, ids: IdArray, k: int) -> IdArray:
    """[n, k]: what requests for k classes get. The first k of the `timed` answers [n, m], unless m searched wider."""
    if head.plan.width(k) == head.plan.width(ids.shape[1]):
        return ids[:, :k]
    rows = truth.contexts[: len(ids)]
    chunks = range(0, len(rows), TRUTH_CHUNK_ROWS)
    return TopK.concat([head.topk(rows[start : start + TRUTH_CHUNK_ROWS], k) for start in chunks]).ids


def measure_row_errors(dense: FullSoftmax, truth: Truth, ids: IdArray, logprobs: FloatArray) -> DoubleArray:
    """[n]: mean |error| of each row's log-probabilities, nats."""
    parts = []
    for start in range(0, len(ids), TRUTH_CHUNK_ROWS):
        rows = slice(start, min(start + TRUTH_CHUNK_ROWS, len(ids)))
        exact = compute_logprobs(dense, truth, rows, ids[rows])
        parts.append(np.abs(logprobs[rows] - exact).mean(axis=1, dtype=np.float64))
    return np.concatenate(parts)
