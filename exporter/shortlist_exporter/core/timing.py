"""Interleaved timing: blocks of calls in turn, so that drift of the machine meets every contender alike.

What was answered is kept beside how long it took: precision can be read off the very calls that were timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Contexts = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]
Call = Callable[[Contexts], Ids]

BLOCK = 50  # calls of one contender before the next has its turn
WARM = 5
HAIR = 2.0**-20  # one pass scales its rows by this much more than the one before


@dataclass(frozen=True)
class Timed:
    """seconds: [calls] float64. ids: [calls x batch, k] int64, the answers in the order of the rows."""

    seconds: npt.NDArray[np.float64]
    ids: Ids

    @property
    def total(self) -> float:
        """Seconds of all calls."""
        return float(self.seconds.sum())

    def figures(self) -> dict[str, float]:
        """Mean, median and p99 of a call, in microseconds."""
        us = self.seconds * 1e6
        return {"mean": float(us.mean()), "median": float(np.median(us)), "p99": float(np.quantile(us, 0.99))}


def times(
    calls: Mapping[str, Call], contexts: Contexts, batch: int, every: Mapping[str, int] | None = None
) -> dict[str, Timed]:
    """Every contender over the same batches of `contexts` [n, d]; rows that do not fill a batch are left out.

    every: contender -> n, where it is called for each n-th batch only (1 by default).
    """
    batches = [contexts[start : start + batch] for start in range(0, len(contexts) - batch + 1, batch)]
    for call in calls.values():
        for rows in batches[:WARM]:
            call(rows * np.float32(1 + HAIR / 2))
    spent: dict[str, list[float]] = {name: [] for name in calls}
    answers: dict[str, list[Ids]] = {name: [] for name in calls}
    for start in range(0, len(batches), BLOCK):
        for name, call in calls.items():
            for rows in batches[start : start + BLOCK : (every or {}).get(name, 1)]:
                seconds, ids = one(call, rows)
                spent[name].append(seconds)
                answers[name].append(ids)
    return {name: Timed(np.array(spent[name]), np.concatenate(answers[name])) for name in calls}


def fresh(contexts: Contexts, turn: int) -> Contexts:
    """The same directions as never asked before: scaled by a hair, so that no cached answer fits.

    The order of classes does not change without a bias, and hardly with one.
    """
    return contexts * np.float32(1 + turn * HAIR)


def one(call: Call, rows: Contexts) -> tuple[float, Ids]:
    """Wall seconds of one call, and its answer."""
    start = time.perf_counter()
    ids = call(rows)
    return time.perf_counter() - start, ids


def fastest(calls: Mapping[str, Call], contexts: Contexts, batch: int) -> str:
    """The contender with the least total time over a short trial."""
    trial = times(calls, contexts[: max(60, 3 * batch)], batch)
    return min(trial, key=lambda name: trial[name].total)
