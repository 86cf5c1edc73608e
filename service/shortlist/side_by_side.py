"""A call's rows by several threads, a few at a time: for loops that do not hold the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any

import numpy.typing as npt

FEWEST = 4  # rows: of the fastest loops they take twice as long as to wake a thread
TURNS = 4  # of each thread: one that wakes late takes fewer


class SideBySide:
    """Equals the call itself, for one that treats each row by itself. Threads may share it."""

    def __init__(self, threads: int, fewest: int = FEWEST) -> None:
        """The thread that calls counts among `threads`; the others begin when they are first needed.

        fewest: rows worth a turn.
        """
        self.threads, self.fewest = threads, fewest
        self.others = ThreadPoolExecutor(max(1, threads - 1), "rows")

    def __call__(self, call: Callable[..., Any], *arrays: npt.NDArray[Any]) -> None:
        """call(*arrays), all of them [B, ...], or of some rows after others; raises what any of these raises."""
        rows = len(arrays[0])
        threads = min(self.threads, rows // self.fewest)
        if threads < 2:
            call(*arrays)
            return
        some = max(self.fewest, ceil(rows / (TURNS * threads)))
        starts = iter(range(0, rows, some))

        def work() -> None:
            for start in starts:  # shared: each start is taken once
                call(*(array[start : start + some] for array in arrays))

        others = [self.others.submit(work) for _ in range(threads - 1)]
        work()
        for other in others:
            if not other.cancel():  # which works where it never woke
                other.result()
