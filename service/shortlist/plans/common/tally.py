"""How many parts of a head each row opened: counted where it is computed, read at a scrape."""

from __future__ import annotations

import threading

import numpy as np
import numpy.typing as npt


class Tally:
    """counts[n]: rows that opened n of at most `parts` parts. Threads may share it."""

    def __init__(self, parts: int) -> None:
        """Nothing counted yet."""
        self.parts = parts
        self.counts = [0] * (parts + 1)
        self._lock = threading.Lock()

    def one(self, opened: int) -> None:
        """A row."""
        with self._lock:
            self.counts[opened] += 1

    def many(self, opened: npt.NDArray[np.int64]) -> None:
        """Some rows, [B]."""
        found = np.bincount(opened, minlength=len(self.counts)).tolist()
        with self._lock:
            self.counts = [before + own for before, own in zip(self.counts, found, strict=True)]

    def reset(self) -> None:
        """Forget what was counted."""
        with self._lock:
            self.counts = [0] * (self.parts + 1)

    @property
    def mean(self) -> float:
        """Parts a row opened; 0 for no rows."""
        rows = sum(self.counts)
        return sum(number * count for number, count in enumerate(self.counts)) / rows if rows else 0.0
