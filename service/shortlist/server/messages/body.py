"""Request bodies, read within a size, a time and the server's room."""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any, Protocol

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from shortlist.errors import SlowBody

from .headers import RawHeaders, make_size_error, read_content_length

SWEEP_SECONDS = 1.0  # between looks for bodies that do not come


class ByteHold(Protocol):
    """The room that the bytes of a body take; both methods raise Overloaded."""

    def check_bytes(self, length: int) -> None:
        """Refuse `length` bytes for which there is no room."""

    def take_bytes(self, length: int) -> None:
        """Hold `length` more bytes."""


class BodyReader:
    """Reads bodies of at most `max_bytes`, each within `timeout` seconds from its request's start."""

    def __init__(self, max_bytes: int, timeout: float) -> None:
        self.max_bytes, self.timeout = max_bytes, timeout
        self.start_times: dict[asyncio.Task[Any], float] = {}  # requests whose body is being read
        self.end = math.inf  # when no body is waited for any longer, by `time.perf_counter`

    async def read(
        self, receive: Receive, headers: RawHeaders, start: float, hold: ByteHold | None, limit: int | None = None
    ) -> bytes:
        """The whole body of a request that started at `start`; `hold` takes its bytes as they arrive.

        limit: bytes, for a request that has a limit of its own. Raises BadInput, Overloaded, TooLarge, SlowBody,
        ClientDisconnect.
        """
        limit = self.max_bytes if limit is None else limit
        length = read_content_length(headers, limit)
        task = asyncio.current_task()
        assert task is not None
        self.start_times[task] = start
        try:
            return await join_chunks(receive, hold, length, limit)
        except asyncio.CancelledError:
            if task.uncancel() or not self.is_late(start):
                raise
            raise SlowBody.after(self.timeout) from None
        finally:
            del self.start_times[task]

    def is_late(self, start: float) -> bool:
        """Whether the body of a request that started at `start` is not waited for any longer."""
        return time.perf_counter() >= min(start + self.timeout, self.end)

    def finish(self, seconds: float) -> None:
        """Wait for no body longer than `seconds` from now on: the server stops."""
        self.end = time.perf_counter() + seconds

    async def cancel_late_bodies(self) -> None:
        """Cancel, in an endless loop, the reading of late bodies; one timer for all is cheaper than one for each."""
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.timeout))
            for task in [task for task, start in self.start_times.items() if self.is_late(start)]:
                task.cancel()


async def join_chunks(receive: Receive, hold: ByteHold | None, length: int, limit: int) -> bytes:
    """All chunks of a body of announced `length` and at most `limit` bytes.

    Raises Overloaded, TooLarge, ClientDisconnect.
    """
    if hold is not None:
        hold.check_bytes(length)
    chunks: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunks.append(message.get("body", b""))
        size += len(chunks[-1])
        if size > limit:
            raise make_size_error(limit)
        if hold is not None:
            hold.take_bytes(len(chunks[-1]))
        more = message.get("more_body", False)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
