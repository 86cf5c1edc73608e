"""From how many rows on the dense head is at least as fast as a plan, on this machine and device."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from shortlist.core.results import FloatArray

CROSSOVER_ROWS = (1, 2, 4, 8, 16, 32, 64, 128)  # numbers of rows that are tried
CROSSOVER_CALLS, LEAST_CALLS = 7, 3  # timed of each side for each of them: fewer of slow ones
CROSSOVER_SECONDS = 1.0  # after which no more than the least are timed
MIN_CROSSOVER_ROWS = 2  # a single row is always the head's: else what was measured would never answer
ALWAYS_SLOWER = (
    "dense is faster than this head at every number of rows on this machine, so it answers all requests "
    f"of {MIN_CROSSOVER_ROWS} rows and more: choose another method or settings, or --no-fallback"
)

Run = Callable[[FloatArray], object]


def measure_crossover(run_plan: Run, run_dense: Run, contexts: FloatArray) -> int | None:
    """The number of rows from which on `run_dense` takes no longer than `run_plan`; None where it takes longer.

    Tried are the powers of two up to 128, on rows of `contexts` [n, d], from the largest down to the second in turn
    that the plan is faster for: a single one may be the fault of other work on the machine.
    """
    wins: dict[int, bool] = {}
    for rows in reversed([rows for rows in CROSSOVER_ROWS if rows <= len(contexts)]):
        wins[rows] = dense_wins(run_plan, run_dense, contexts, rows)
        if list(wins.values())[-2:] == [False, False]:
            break
    return choose_crossover(wins)


def choose_crossover(wins: dict[int, bool]) -> int | None:
    """The number of rows from which on dense is to answer, so that the fewest of the timings speak against it.

    wins: whether dense was as fast, by numbers of rows, largest first. None where dense is not to answer at all. Of
    several the largest.
    """
    crossover, margin, most = None, 0, 0
    for rows, is_win in wins.items():
        margin += 1 if is_win else -1
        if margin > most:
            crossover, most = rows, margin
    return crossover


def keep_single_rows(crossover: int | None) -> int | None:
    """The crossover that a head is given: one that was measured, but at least `MIN_CROSSOVER_ROWS`."""
    return None if crossover is None else max(MIN_CROSSOVER_ROWS, crossover)


def dense_wins(run_plan: Run, run_dense: Run, contexts: FloatArray, rows: int) -> bool:
    """Whether the median of interleaved calls is no longer for dense than for the plan.

    Each call of both has the next `rows` of `contexts` [n, d]: a plan may take far longer for some than for others.
    """
    seconds: list[tuple[float, float]] = []
    while len(seconds) < LEAST_CALLS or (len(seconds) < CROSSOVER_CALLS and np.sum(seconds) < CROSSOVER_SECONDS):
        part = contexts.take(range(len(seconds) * rows, (len(seconds) + 1) * rows), axis=0, mode="wrap")
        seconds.append((time_call(run_plan, part), time_call(run_dense, part)))
    plan_seconds, dense_seconds = np.median(seconds, axis=0)
    return bool(dense_seconds <= plan_seconds)


def time_call(run: Run, contexts: FloatArray) -> float:
    """Wall time of one call, in seconds."""
    start = time.perf_counter()
    run(contexts)
    return time.perf_counter() - start


def is_many(rows: int, crossover: int | None) -> bool:
    """Whether a request has so many rows that dense answers it."""
    return crossover is not None and rows >= crossover
