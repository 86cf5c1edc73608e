"""The dense layer's answer beside the head's, and the time of both."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from shortlist.core.results import FloatArray, TopK
from shortlist.core.units import MICROSECONDS_PER_SECOND
from shortlist.head import Head
from shortlist.plans.common.normalizer import make_topk

TIMED_CALLS = 5  # at most, of each side
TIMING_SECONDS = 0.02  # after which no further call is timed


class Query(NamedTuple):
    """What both sides are asked: contexts [B, d], k, and the lists of ids that restrict the answer."""

    contexts: FloatArray
    k: int
    allow: list[int] | None
    ban: list[int] | None
    exact: bool


class Comparison(NamedTuple):
    """The dense layer's answer, and microseconds of both sides; None where the head has no dense layer."""

    dense: TopK | None
    head_us: float
    dense_us: float | None


def compare(head: Head, query: Query) -> Comparison:
    """Ask the dense layer, and time both sides by turns; raises BadInput."""

    def ask_head() -> TopK:
        return head.topk(query.contexts, query.k, allow=query.allow, ban=query.ban, exact=query.exact)

    calls = {"head": ask_head}
    if head.exact is not None:
        calls["dense"] = lambda: ask_dense(head, query)
    tops, times = time_by_turns(calls)
    return Comparison(tops.get("dense"), times["head"], times.get("dense"))


def ask_dense(head: Head, query: Query) -> TopK:
    """The k best classes by the dense layer; of a head that is its own reference, by its whole distribution."""
    assert head.exact is not None
    rows = head.check_contexts(query.contexts)
    class_filter = head.check_lists(query.allow, query.ban, len(rows))
    return make_topk(head.run(head.exact, rows, head.check_k(query.k), class_filter), "exact")


def time_by_turns(calls: dict[str, Callable[[], TopK]]) -> tuple[dict[str, TopK], dict[str, float]]:
    """What each call returns, and its median time in microseconds."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    tops: dict[str, TopK] = {}
    end = time.perf_counter() + TIMING_SECONDS
    for _ in range(TIMED_CALLS):
        for name, call in calls.items():
            start = time.perf_counter()
            tops[name] = call()
            times[name].append(time.perf_counter() - start)
        if time.perf_counter() > end:
            break
    return tops, {name: median(seconds) * MICROSECONDS_PER_SECOND for name, seconds in times.items()}
