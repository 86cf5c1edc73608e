"""Interleaved timing: blocks of calls in turn, so that drift of the machine meets every contender alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

Contexts = npt.NDArray[np.float32]
Call = Callable[[Contexts], object]

BLOCK = 50  # calls of one contender before the next has its turn
WARM = 5


def times(calls: Mapping[str, Call], contexts: Contexts, batch: int) -> dict[str, npt.NDArray[np.float64]]:
    """Seconds of every call, [number of batches], over the same batches of `contexts` for every contender."""
    batches = [contexts[start : start + batch] for start in range(0, len(contexts) - batch + 1, batch)]
    for call in calls.values():
        for rows in batches[:WARM]:
            call(rows)
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for start in range(0, len(batches), BLOCK):
        for name, call in calls.items():
            spent[name] += [seconds(call, rows) for rows in batches[start : start + BLOCK]]
    return {name: np.array(values) for name, values in spent.items()}


def seconds(call: Call, rows: Contexts) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    call(rows)
    return time.perf_counter() - start


def fastest(calls: Mapping[str, Call], contexts: Contexts, batch: int) -> str:
    """The contender with the least total time over a short trial."""
    trial = times(calls, contexts[: max(60, 3 * batch)], batch)
    return min(trial, key=lambda name: float(trial[name].sum()))
