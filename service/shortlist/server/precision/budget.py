"""The processor time that may be spent on asking again."""

from __future__ import annotations

import time
from collections.abc import Callable

SAVED_SECONDS = 10.0  # of budget, that an idle time may leave


class CpuBudget:
    """A share of the processor's time. clock: seconds.

    What was spent is known only afterwards, so that the balance may be below zero: then it has to come back first.
    """

    def __init__(self, share: float, processors: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = share * processors  # seconds a second
        self.clock, self.balance, self.time = clock, 0.0, clock()

    def count_wait(self) -> float:
        """Seconds until something may be spent."""
        now = self.clock()
        self.balance = min(self.balance + self.rate * (now - self.time), self.rate * SAVED_SECONDS)
        self.time = now
        return max(0.0, -self.balance / self.rate)

    def spend(self, seconds: float) -> None:
        """Take off processor seconds."""
        self.balance -= seconds
