"""One head on one split, beside dense in the same blocks: its times, and the precision of what it answered."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from shortlist.core.results import TopK
from shortlist.evaluation.statistics import Doubles, Z, share
from shortlist.head import Head
from shortlist_models import FullSoftmax

from shortlist_exporter.core.timing import Ids, Timed, times
from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.records.tuning import Measured, Promise
from shortlist_exporter.verify.quality import Truth, exact_logprobs

DENSE_CALLS = 128  # about so many of dense in a measurement: enough for its mean, and not most of the time
CHUNK = 64


@dataclass
class Answers:
    """Calls of one head, and what they answered beside ids, which the timing keeps."""

    head: Head
    k: int
    tops: list[TopK] = field(default_factory=list)

    def __call__(self, rows: FloatArray) -> Ids:
        """Answer; see `timing.Call`."""
        top = self.head.topk(rows, self.k)
        self.tops.append(top)
        return top.ids

    def last(self, calls: int) -> tuple[FloatArray, FloatArray]:
        """Logprobs [n, k] and scored [n] of the last `calls` calls: those before them warmed up."""
        tops = self.tops[-calls:]
        return np.concatenate([top.logprobs for top in tops]), np.concatenate([top.scored for top in tops])


def measured(own: Answers, dense_head: Answers, dense: FullSoftmax, truth: Truth, promise: Promise) -> Measured:
    """`own` over all rows of `truth` in requests of the promise's batch; rows that fill no batch are left out."""
    calls = len(truth.contexts) // promise.batch
    every = max(1, calls // DENSE_CALLS)
    spent = times({"head": own, "dense": dense_head}, truth.contexts, promise.batch, {"dense": every})
    logprobs, scored = own.last(calls)
    errors = row_errors(dense, truth, spent["head"].ids, logprobs)
    return Measured(
        rows=len(scored),
        precision={n: share(hits(asked(own, truth, spent["head"].ids, n), truth.ids, n)) for n in promise.precision},
        logprob_error=float(errors.mean()),
        logprob_error_high=float(errors.mean() + Z * errors.std() / np.sqrt(len(errors))),
        scored=float(scored.mean()),
        dense_share=float((scored == own.head.manifest.classes).mean()),
        **figures(spent["head"], spent["dense"]),
    )


def figures(own: Timed, dense: Timed) -> dict[str, float]:
    """Times in microseconds a call."""
    head, beside = own.figures(), dense.figures()
    return {
        "us": head["mean"],
        "us_p99": head["p99"],
        "dense_us": beside["mean"],
        "speedup": beside["mean"] / head["mean"],
    }


def asked(own: Answers, truth: Truth, timed: Ids, k: int) -> Ids:
    """[n, k]: what requests for k classes get. The first k of the `timed` answers [n, m], unless m searched wider."""
    head = own.head
    if head.plan.width(k) == head.plan.width(timed.shape[1]):
        return timed[:, :k]
    rows = truth.contexts[: len(timed)]
    return np.concatenate([head.topk(rows[i : i + CHUNK], k).ids for i in range(0, len(rows), CHUNK)])


def hits(found: Ids, true: Ids, k: int) -> Doubles:
    """[n]: share of the k true classes, of `true` [n or more, m], among the k of `found`."""
    same = found[:, :k, None] == true[: len(found), None, :k]
    return np.asarray(same.any(axis=1).mean(axis=1))


def row_errors(dense: FullSoftmax, truth: Truth, ids: Ids, logprobs: FloatArray) -> Doubles:
    """[n]: mean |error| of each row's log-probabilities, nats."""
    parts = []
    with torch.inference_mode():
        for start in range(0, len(ids), CHUNK):
            rows = slice(start, min(start + CHUNK, len(ids)))
            exact = exact_logprobs(dense, truth, rows, ids[rows])
            parts.append(np.abs(logprobs[rows] - exact).mean(axis=1, dtype=np.float64))
    return np.concatenate(parts)


def part(truth: Truth, rows: int) -> Truth:
    """The first `rows` rows."""
    return Truth(truth.contexts[:rows], truth.ids[:rows], truth.logprobs[:rows], truth.log_normalizer[:rows])
