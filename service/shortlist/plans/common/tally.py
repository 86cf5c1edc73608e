"""How many parts of a head each row opened: counted where it is computed, read at a scrape."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt

from shortlist.runtime.lazy import Lazy


class Tally:
    """counts[n]: rows that opened n of at most `parts` parts. Threads may share it."""

    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.counts = [0] * (parts + 1)
        self._lock = Lazy(threading.Lock, is_own=True)  # a fork may leave the parent's locked

    def count_row(self, opened: int) -> None:
        """Count a row that opened so many parts."""
        with self._lock():
            self.counts[opened] += 1

    def count_rows(self, opened: npt.NDArray[np.int64]) -> None:
        """Count rows that opened so many parts each. opened: [B]."""
        more = np.bincount(opened, minlength=len(self.counts)).tolist()
        with self._lock():
            self.counts = [count + new for count, new in zip(self.counts, more, strict=True)]

    def reset(self) -> None:
        """Forget what was counted."""
        with self._lock():
            self.counts = [0] * (self.parts + 1)

    @property
    def mean(self) -> float:
        """How many parts a row opened in the mean; 0 for no rows."""
        rows = sum(self.counts)
        return sum(number * count for number, count in enumerate(self.counts)) / rows if rows else 0.0
