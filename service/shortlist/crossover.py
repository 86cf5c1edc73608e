"""From how many rows on the dense head is at least as fast as a plan, on this machine and device."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from .legal import UNRESTRICTED
from .plans import Plan
from .result import FloatArray

if TYPE_CHECKING:
    from .head import Head

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
REPEATS = 7


def crossover(head: Head, plan: Plan, contexts: FloatArray) -> int | None:
    """The smallest measured batch of `contexts` [n, d] from which on dense is as fast as `plan`; None if never."""
    if head.dense is None or head.dense is plan:
        return None
    found = None
    for batch in reversed([size for size in BATCHES if size <= len(contexts)]):
        if not dense_wins(head, plan, contexts[:batch]):
            break
        found = batch
    return found


def dense_wins(head: Head, plan: Plan, contexts: FloatArray) -> bool:
    """Medians of interleaved calls on the same rows."""
    assert head.dense is not None
    times: dict[str, list[float]] = {"plan": [], "dense": []}
    for _ in range(REPEATS):
        times["plan"].append(seconds(head, plan, contexts))
        times["dense"].append(seconds(head, head.dense, contexts))
    return float(np.median(times["dense"])) <= float(np.median(times["plan"]))


def seconds(head: Head, plan: Plan, contexts: FloatArray) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    head.run(plan, contexts, min(5, head.manifest.max_k), UNRESTRICTED)
    return time.perf_counter() - start
