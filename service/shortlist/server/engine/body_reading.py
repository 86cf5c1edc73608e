"""Bodies of requests as every route reads them: decompressed, within the limits, large ones decoded in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from shortlist.errors import BadInput, TooLarge
from shortlist.server.messages.compression import decompress
from shortlist.server.messages.headers import CONTENT_ENCODING, JSON_LENGTH, RawHeaders
from shortlist.server.messages.json_fields import MAX_MEMORY_FACTOR, make_json_size_error
from shortlist.server.scheduling.hold import Hold
from shortlist.wire.open_inference import split_body

from .service import Service

MAX_INLINE_BYTES = 64 << 10  # larger bodies are coded in a thread
MAX_LENGTH_DIGITS = 19  # of a header that is worth parsing

Content = TypeVar("Content")


@dataclass(frozen=True, slots=True)
class Body:
    """A whole body, as it was before compression. length_header: how many of its bytes are JSON; None where all are."""

    content: bytes
    length_header: bytes | None = None

    @property
    def json_bytes(self) -> int:
        """How many bytes of it are JSON; all where the header is no length, which `split` refuses."""
        length = parse_length(self.length_header)
        return len(self.content) if length is None else min(len(self.content), length)

    def split(self) -> tuple[memoryview, memoryview | None]:
        """Its JSON, and the binary part, None where no header says how long the JSON is; raises BadInput."""
        if self.length_header is None:
            return memoryview(self.content), None
        return split_body(self.content, self.length_header.decode("latin-1"))


def parse_length(header: bytes | None) -> int | None:
    """The bytes of JSON that a header says; None where it is missing or no length."""
    text = b"" if header is None else header.strip()
    return int(text) if text.isdigit() and len(text) <= MAX_LENGTH_DIGITS else None


async def read_body(service: Service, receive: Receive, headers: RawHeaders, hold: Hold) -> Body:
    """The body of a request to a route that takes JSON or binary data; `hold` takes its bytes.

    Raises BadInput, also where the client leaves before the end, and as `BodyReader.read` and `open_body`.
    """
    content = await receive_bytes(service, receive, headers, hold)
    return await open_body(service, content, headers, hold)


async def read_small_body(service: Service, receive: Receive, headers: RawHeaders, limit: int) -> bytes:
    """A body of JSON alone, at most `limit` bytes also before compression, which holds nothing of the server's room.

    Raises BadInput, also where the client leaves before the end, TooLarge, SlowBody, UnsupportedEncoding.
    """
    limit = min(limit, service.settings.body_limit, service.settings.json_limit)
    content = await receive_bytes(service, receive, headers, None, limit)
    return decompress(content, headers.get(CONTENT_ENCODING, b"").decode("latin-1"), limit)


async def receive_bytes(
    service: Service, receive: Receive, headers: RawHeaders, hold: Hold | None, limit: int | None = None
) -> bytes:
    """A body as it was sent; raises BadInput where the client leaves before the end, and as `BodyReader.read`."""
    try:
        return await service.bodies.read(receive, headers, time.perf_counter(), hold, limit)
    except ClientDisconnect:
        raise BadInput("the connection closed before the whole body had come: send it again") from None


async def open_body(service: Service, content: bytes, headers: RawHeaders, hold: Hold, *, splits: bool = True) -> Body:
    """The body that was sent as `content`, decompressed. splits: whether binary data may follow its JSON.

    Raises TooLarge, also for JSON alone, BadInput, Overloaded, UnsupportedEncoding.
    """
    header, encoding = headers.get(JSON_LENGTH) if splits else None, headers.get(CONTENT_ENCODING)
    json_limit, limit = service.settings.json_limit, service.settings.body_limit
    if encoding:
        limit = min(limit, json_limit) if parse_length(header) is None else limit
        content = await decompress_in_turn(service, content, encoding.decode("latin-1"), limit, hold.client)
        hold.take_bytes(len(content))
    body = Body(content, header)
    if body.json_bytes > json_limit:
        raise make_json_size_error(body.json_bytes, json_limit)
    return body


async def decompress_in_turn(service: Service, content: bytes, encoding: str, limit: int, client: str) -> bytes:
    """The body as it was before compression: where it is small at once, else in a thread, one after the other."""
    if len(content) <= MAX_INLINE_BYTES:
        with contextlib.suppress(TooLarge):
            return decompress(content, encoding, min(limit, MAX_INLINE_BYTES))
    async with service.decode_turns.turn(client):
        return await asyncio.to_thread(decompress, content, encoding, limit)


async def run_decoder(service: Service, body: Body, hold: Hold, decode: Callable[[], Content]) -> Content:
    """What `decode` makes of a body: of a small one at once, of a large one in a thread, much JSON one after the other.

    Raises what `decode` raises, and Overloaded where the server has no room for what is parsed.
    """
    if len(body.content) <= MAX_INLINE_BYTES:
        return decode()
    if body.json_bytes <= MAX_INLINE_BYTES:
        return await asyncio.to_thread(decode)
    async with service.decode_turns.turn(hold.client):
        with hold.extra_bytes(MAX_MEMORY_FACTOR * body.json_bytes):
            return await asyncio.to_thread(decode)
