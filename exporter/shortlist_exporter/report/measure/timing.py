"""How long calls take beside each other: blocks in turn over the same rows, so that drift meets all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import numpy as np

from shortlist_exporter.core.types import FloatArray

Call = Callable[[FloatArray], object]

BLOCK = 20  # rows of one contender before the next has its turn
WARM = 3


def interleaved(calls: Mapping[str, Call], contexts: FloatArray, batch: int, seconds: float) -> dict[str, FloatArray]:
    """Wall seconds of every call, over batches of `contexts` [n, d], until they or `seconds` are used up."""
    batches = [contexts[start : start + batch] for start in range(0, len(contexts) - batch + 1, batch)]
    for call in calls.values():
        for rows in batches[:WARM]:
            call(rows)
    spent: dict[str, list[float]] = {name: [] for name in calls}
    end, block = time.perf_counter() + seconds, block_of(batch)
    for start in range(0, len(batches), block):
        for name, call in calls.items():
            spent[name] += [one(call, rows) for rows in batches[start : start + block]]
        if time.perf_counter() > end:
            break
    return {name: np.array(values, np.float32) for name, values in spent.items()}


def block_of(batch: int) -> int:
    """Calls of one contender before the next has its turn."""
    return max(2, BLOCK // batch)


def speedup(reference: FloatArray, own: FloatArray, batch: int) -> float:
    """Total time of the reference over that of another, block by block; the median, which one pause does not move."""
    starts = range(0, len(own), block_of(batch))
    pairs = [(reference[i : i + block_of(batch)].sum(), own[i : i + block_of(batch)].sum()) for i in starts]
    return float(np.median([theirs / ours for theirs, ours in pairs]))


def one(call: Call, rows: FloatArray) -> float:
    """Wall seconds of one call."""
    start = time.perf_counter()
    call(rows)
    return time.perf_counter() - start
