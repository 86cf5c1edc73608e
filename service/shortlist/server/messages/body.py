"""Request bodies, read within a size, a time and the server's room."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Protocol

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from shortlist.core.checks import cut
from shortlist.errors import SlowBody, Unsupported

from .headers import CONTENT_ENCODING, RawHeaders, check_size, make_size_error, read_content_length

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

    async def read(self, receive: Receive, headers: RawHeaders, start: float, hold: ByteHold) -> bytes:
        """The whole body of a request that started at `start`; `hold` takes its bytes as they arrive.

        Raises BadInput, Overloaded, TooLarge, SlowBody, ClientDisconnect.
        """
        hold.check_bytes(read_content_length(headers, self.max_bytes))
        task = asyncio.current_task()
        assert task is not None
        self.start_times[task] = start
        chunks: list[bytes] = []
        size, more = 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnect
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > self.max_bytes:
                    raise make_size_error(self.max_bytes)
                hold.take_bytes(len(chunks[-1]))
                more = message.get("more_body", False)
        except asyncio.CancelledError:
            if task.uncancel() or time.perf_counter() - start < self.timeout:
                raise
            raise SlowBody.after(self.timeout) from None
        finally:
            del self.start_times[task]
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    async def cancel_late_bodies(self) -> None:
        """Cancel, in an endless loop, the reading of late bodies; one timer for all is cheaper than one for each."""
        while True:
            await asyncio.sleep(min(SWEEP_SECONDS, self.timeout))
            late = time.perf_counter() - self.timeout
            for task in [task for task, start in self.start_times.items() if start <= late]:
                task.cancel()


async def read_plain_body(request: Request, limit: int) -> bytes:
    """The whole body of a small request, at most `limit` bytes; raises TooLarge, BadInput, ClientDisconnect.

    A compressed one raises Unsupported.
    """
    headers = dict(request.scope["headers"])
    encoding = headers.get(CONTENT_ENCODING, b"identity")
    if encoding != b"identity":
        raise Unsupported(f"content encoding '{cut(encoding.decode('latin-1'))}' is not served here: send plain JSON")
    read_content_length(headers, limit)
    body = b""
    async for chunk in request.stream():
        body += chunk
        check_size(len(body), limit)
    return body
