"""Turns at work that keeps the interpreter to itself, as parsing large JSON does: one at a time, clients in turn.

After each turn nobody works for as long as it took, so that the event loop has at least half of the interpreter.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict, deque
from collections.abc import AsyncIterator

from shortlist.errors import Overloaded

from .shares import Shares


class Turns:
    """Who works, who waits, and until when everybody rests. max_waiting: of all clients together."""

    def __init__(self, max_waiting: int) -> None:
        self.shares = Shares(max_waiting)
        self.lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self.busy = False

    @contextlib.asynccontextmanager
    async def turn(self, client: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it while the context is open; raises Overloaded where too many wait."""
        if self.busy:
            await self.wait(client)
        self.busy = True
        loop = asyncio.get_running_loop()
        start = loop.time()
        try:
            yield
        finally:
            loop.call_later(loop.time() - start, self.call_next)

    async def wait(self, client: str) -> None:
        """Stand in the client's line until it is called."""
        if not self.shares.has_room(client, 1):
            raise Overloaded("the server has too many large bodies to decode: try again in 1 s")
        called = asyncio.get_running_loop().create_future()
        self.lines.setdefault(client, deque()).append(called)
        self.shares.add(client, 1)
        try:
            await called
        except asyncio.CancelledError:
            if called.done() and not called.cancelled():
                self.call_next()  # the turn goes to somebody else
            raise
        finally:
            self.shares.add(client, -1)

    def call_next(self) -> None:
        """Give the turn to the first of the client whose turn it is; that client goes behind the others."""
        self.busy = False
        while self.lines and not self.busy:
            client, line = next(iter(self.lines.items()))
            called = line.popleft()
            self.lines.move_to_end(client)
            if not line:
                del self.lines[client]
            if not called.cancelled():
                called.set_result(None)
                self.busy = True
