"""What a draw from the whole softmax costs beside an exact answer."""

from __future__ import annotations

import numpy as np
from shortlist.core.results import FloatArray
from shortlist.evaluation.timing import Call, time_calls
from shortlist.head import Head

TEMPERATURES = (0.7, 1.0)
TIMED_ROWS = 600
EXACT = "exact"


def measure_sampling(head: Head, contexts: FloatArray) -> dict[float, float]:
    """By temperature: total time of a draw of each of the contexts [n, d] over that of its exact best class."""
    rows = contexts[np.random.default_rng(0).permutation(len(contexts))[:TIMED_ROWS]]
    calls: dict[str, Call] = {EXACT: lambda some: head.topk(some, 1, exact=True).ids}
    calls |= {str(temperature): make_draw(head, temperature) for temperature in TEMPERATURES}
    times = time_calls(calls, rows, 1, block=20)
    return {temperature: times[str(temperature)].total / times[EXACT].total for temperature in TEMPERATURES}


def make_draw(head: Head, temperature: float) -> Call:
    """A draw of every row, each call at another position."""
    position = iter(range(1 << 62))
    return lambda rows: head.sample(rows, seed=1, position=next(position), temperature=temperature).ids
