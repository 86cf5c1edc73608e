"""Wall times of heads beside the fastest dense spelling, as the papers' pages give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import FloatArray
from shortlist.evaluation.timing import Call, CallTimes, time_calls
from shortlist.head import Head

from benchmarks.common.dense import TopK

TIMED_K = 5
FASTEST_DENSE = "dense, onnxruntime"


@dataclass(frozen=True)
class WallTime:
    """Microseconds a call, and total dense time over total time."""

    name: str
    mean: float
    median: float
    p99: float
    speedup: float


def summarize_times(times: Mapping[str, CallTimes], dense: str) -> list[WallTime]:
    """One for each of `timed`, in its order; speed-ups are over the entry `dense`."""
    return [WallTime(name, **one.summarize(), speedup=times[dense].total / one.total) for name, one in times.items()]


def time_beside_dense(dense: Call, calls: Mapping[str, Call], rows: FloatArray, batch: int) -> list[WallTime]:
    """Dense first, then each of `calls`, timed in turn with dense alone.

    With several contenders at once, one would find weights in the processor's cache that another has just read.
    """
    results: list[WallTime] = []
    for name, call in calls.items():
        pair = summarize_times(time_calls({FASTEST_DENSE: dense, name: call}, rows, batch), FASTEST_DENSE)
        results += pair[bool(results) :]
    return results


def make_topk_call(topk: TopK) -> Call:
    """A spelling of dense as a timed call: the best `K`."""
    return lambda rows: topk(rows, TIMED_K)


def make_head_call(head: Head) -> Call:
    """`Head.topk` as a timed call, log-probabilities and checks included."""
    return lambda rows: head.topk(rows, TIMED_K).ids


def make_plan_call(head: Head) -> Call:
    """The plan's own answer as a timed call, without the head's checks."""
    return lambda rows: head.plan.topk(rows, TIMED_K, UNRESTRICTED).ids


def draw_rows(contexts: FloatArray, count: int) -> FloatArray:
    """`count` of the rows of `contexts` [n, d] in random order, the same ones every time."""
    return contexts[np.random.default_rng(0).permutation(len(contexts))[:count]]
