"""Changes of what is served, one at a time: each takes seconds of the processor, and memory for another head."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from shortlist.errors import Overloaded

MAX_WAITING_LOADS = 16  # asked by clients
RETRY_SECONDS = 5

Result = TypeVar("Result")


class LoadQueue:
    """Runs changes in a thread, one after the other, in the order in which they were asked."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.thread = ThreadPoolExecutor(1, "load")  # always the same: each thread has a heap of its own
        self.waiting = 0  # of clients

    async def run(self, change: Callable[[], Result]) -> Result:
        """What `change` returns, once its turn has come; of the server's own, for which there is always room."""
        async with self.lock:
            return await self.run_in_thread(change)

    async def run_in_thread(self, change: Callable[[], Result]) -> Result:
        """What `change` returns, in the thread of all changes."""
        return await asyncio.get_running_loop().run_in_executor(self.thread, change)

    async def run_for_client(self, change: Callable[[], Result], receive: Receive) -> Result:
        """As `run_in_thread`, for a client whose request was read; one that leaves before its turn gives it up.

        receive: returns when the client is gone. Raises Overloaded where too many wait, and ClientDisconnect.
        """
        if self.waiting >= MAX_WAITING_LOADS:
            raise Overloaded(
                f"{self.waiting} loads wait already: ask again in {RETRY_SECONDS} s", retry_after=RETRY_SECONDS
            )
        turn, leaving = asyncio.ensure_future(self.lock.acquire()), asyncio.ensure_future(receive())
        self.waiting += 1
        try:
            await asyncio.wait({turn, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                raise ClientDisconnect
            return await self.run_in_thread(change)
        finally:
            self.waiting -= 1
            leaving.cancel()
            if turn.done():
                self.lock.release()
            else:
                turn.cancel()
