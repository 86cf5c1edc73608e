"""Interleaved timing: blocks of calls in turn, so that drift of the machine meets every contender alike.

The ids that were returned are kept beside how long they took: precision can be read off the very calls that were timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray, IdArray

Call = Callable[[FloatArray], IdArray]  # contexts [b, d] -> ids [b, k]

BLOCK_CALLS = 50  # of one contender before the next has its turn
WARM_UP_CALLS = 5  # of every contender before anything is timed
TRIAL_ROWS = 60  # at least, by which the fastest contender is found
RESCALE_STEP = 2.0**-20  # each pass scales its rows by this much more than the one before


@dataclass(frozen=True)
class CallTimes:
    """seconds: [calls] float64. ids: [calls x batch, k] int64, the answers in the order of the rows."""

    seconds: npt.NDArray[np.float64]
    ids: IdArray

    @property
    def total(self) -> float:
        return float(self.seconds.sum())

    def summarize(self) -> dict[str, float]:
        """`mean`, `median` and `p99` of a call, in microseconds."""
        us = self.seconds * 1e6
        return {"mean": float(us.mean()), "median": float(np.median(us)), "p99": float(np.quantile(us, 0.99))}


def time_calls(
    calls: Mapping[str, Call],
    contexts: FloatArray,
    batch: int,
    *,
    every: Mapping[str, int] | None = None,
    block: int = BLOCK_CALLS,
    max_seconds: float = math.inf,
) -> dict[str, CallTimes]:
    """Time every contender over the same batches of `contexts` [n, d]; rows that do not fill a batch are left out.

    every: contender -> n, where it is called for each n-th batch only (1 by default). block: calls of one contender
    before the next has its turn. max_seconds: no further round of blocks begins after so long.
    """
    batches = [contexts[start : start + batch] for start in range(0, len(contexts) - batch + 1, batch)]
    warm_up(calls, batches)
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    ids: dict[str, list[IdArray]] = {name: [np.empty((0, 0), np.int64)] if not batches else [] for name in calls}
    end = time.perf_counter() + max_seconds
    for start in range(0, len(batches), block):
        for name, call in calls.items():
            for rows in batches[start : start + block : (every or {}).get(name, 1)]:
                call_seconds, call_ids = time_call(call, rows)
                seconds[name].append(call_seconds)
                ids[name].append(call_ids)
        if time.perf_counter() > end:
            break
    return {name: CallTimes(np.array(seconds[name]), np.concatenate(ids[name])) for name in calls}


def warm_up(calls: Mapping[str, Call], batches: list[FloatArray]) -> None:
    """Call every contender a few times, with rows that are not among those that will be timed."""
    for call in calls.values():
        for rows in batches[:WARM_UP_CALLS]:
            call(rows * np.float32(1 + RESCALE_STEP / 2))


def time_call(call: Call, rows: FloatArray) -> tuple[float, IdArray]:
    """Wall seconds of one call, and the ids that it returned."""
    start = time.perf_counter()
    ids = call(rows)
    return time.perf_counter() - start, ids


def rescale_rows(contexts: FloatArray, number: int) -> FloatArray:
    """The same directions as vectors that were never asked before, for pass `number`: no cached answer fits them.

    The order of classes does not change without a bias, and hardly with one.
    """
    return contexts * np.float32(1 + number * RESCALE_STEP)


def find_fastest(calls: Mapping[str, Call], contexts: FloatArray, batch: int) -> str:
    """The contender with the least total time over a short trial."""
    trial = time_calls(calls, contexts[: max(TRIAL_ROWS, 3 * batch)], batch)
    return min(trial, key=lambda name: trial[name].total)


def compute_median_speedup(reference: CallTimes, other: CallTimes, block: int) -> float:
    """Total time of the reference over that of another, block by block; the median, which one pause does not move."""
    starts = range(0, len(other.seconds), block)
    pairs = [(reference.seconds[i : i + block].sum(), other.seconds[i : i + block].sum()) for i in starts]
    return float(np.median([reference_sum / other_sum for reference_sum, other_sum in pairs]))
