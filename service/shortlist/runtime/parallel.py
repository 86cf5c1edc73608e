"""Rows of one call spread over several threads, for compiled loops that do not hold the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import ceil
from time import perf_counter

from shortlist.core.moving_average import ClippedAverage
from shortlist.runtime.lazy import Lazy

MIN_THREAD_SECONDS = 125e-6  # of work for each thread: waking one takes about as long
CALL_SECONDS_AVERAGE = ClippedAverage(
    recent_weight=0.2, clip=2.0
)  # a call that took longer than that met a busy system
PARTS_PER_THREAD = 4  # so that a thread that wakes late runs fewer of them

Ranges = Iterator[tuple[int, int]]  # of rows, without the last number


class ThreadedRows:
    """Runs a call on its rows by several threads; the call must treat each row by itself. Threads may share this."""

    def __init__(self, threads: int) -> None:
        """threads: including the calling one; the others are started when they are first needed."""
        self.threads = threads
        self.row_seconds = 0.0  # by the latest calls; not known yet, so that the first is made by one thread
        self.others = Lazy(partial(ThreadPoolExecutor, max(1, threads - 1), "rows"), is_own=True)

    def __call__(self, call: Callable[[int, int], object], rows: int) -> None:
        """Run call(first, last) for rows `first` to `last` - 1 of 0 to `rows` - 1; raises what it raises.

        One call is for all of them, or for a few where threads share them.
        """
        if self.threads < 2 or rows < 2:
            call(0, rows)
            return
        threads = self.count_threads(rows)
        parts = split_rows(rows, ceil(rows / (PARTS_PER_THREAD * threads)) if threads > 1 else rows)
        others = [self.others().submit(run_parts, call, parts) for _ in range(threads - 1)]
        rows_here, seconds = run_parts(call, parts)
        if rows_here:
            self.note(seconds / rows_here)
        for other in others:
            if not other.cancel():  # True for a thread that never woke
                other.result()

    def count_threads(self, rows: int) -> int:
        """How many threads are worth waking for a call of so many rows, by what rows took in the calls before."""
        return max(1, min(self.threads, rows, int(rows * self.row_seconds / MIN_THREAD_SECONDS)))

    def note(self, seconds: float) -> None:
        """Remember how long a row took."""
        self.row_seconds = CALL_SECONDS_AVERAGE.update(self.row_seconds, seconds)


def split_rows(rows: int, some: int) -> Ranges:
    """Iterate over the rows, `some` at a time."""
    return iter([(first, min(first + some, rows)) for first in range(0, rows, some)])


def run_parts(call: Callable[[int, int], object], parts: Ranges) -> tuple[int, float]:
    """Run `call` on the parts that no other thread has run; returns their number of rows, and the seconds spent."""
    start, rows = perf_counter(), 0
    for first, last in parts:  # a list's iterator gives each part once, whichever thread asks
        call(first, last)
        rows += last - first
    return rows, perf_counter() - start
