"""Quotas: how many rows a second each client may have computed, on average over some seconds."""

from __future__ import annotations

import math
import time

from shortlist.errors import Overloaded

QUOTA_WINDOW_SECONDS = 10.0  # of which a client that has paused may use all at once
MIN_SWEPT_CLIENTS = 1024  # before those that have their whole quota are forgotten


class Quotas:
    """What each client used lately, in rows, as a bucket that leaks. rate: rows a second that leak.

    A request is refused while the bucket is full, and otherwise taken however large it is, so that a client of large
    requests gets its rate, too.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.used: dict[str, tuple[float, float]] = {}  # by client: rows in the bucket, and when that was
        self.sweep_size = MIN_SWEPT_CLIENTS

    def check(self, client: str) -> None:
        """Raise Overloaded where a client's quota is used up."""
        excess = self.get_level(client, time.monotonic()) - self.rate * QUOTA_WINDOW_SECONDS
        if excess >= 0:
            seconds = max(1, math.ceil(excess / self.rate))
            raise Overloaded(f"the quota of {self.rate:g} rows a second is used up: try again in {seconds} s", seconds)

    def spend(self, client: str, rows: int) -> None:
        """Count rows of a client."""
        now = time.monotonic()
        self.used[client] = self.get_level(client, now) + rows, now
        if len(self.used) >= self.sweep_size:
            self.sweep(now)

    def get_level(self, client: str, now: float) -> float:
        """Rows in a client's bucket."""
        level, then = self.used.get(client, (0.0, now))
        return max(0.0, level - self.rate * (now - then))

    def sweep(self, now: float) -> None:
        """Forget the clients whose buckets are empty; the next time is when there are twice as many as are left."""
        self.used = {client: use for client, use in self.used.items() if self.get_level(client, now) > 0}
        self.sweep_size = max(MIN_SWEPT_CLIENTS, 2 * len(self.used))
