"""Request bodies, read with a limit, and responses."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from shortlist.core.checks import cut
from shortlist.errors import Unsupported

from .headers import announced, check_size


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body of a request; see `read`. A compressed one raises Unsupported."""
    headers = dict(request.scope["headers"])
    encoding = headers.get(b"content-encoding", b"identity")
    if encoding != b"identity":
        raise Unsupported(f"content encoding '{cut(encoding.decode('latin-1'))}' is not served here: send plain JSON")
    announced(headers, limit)
    return await read(request.receive, limit)


async def read(receive: Receive, limit: int, came: Callable[[int], None] = lambda _: None) -> bytes:
    """The whole body, at most `limit` bytes, refused as soon as it is known to be longer.

    came: hears of every part's bytes. Raises TooLarge, ClientDisconnect.
    """
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        check_size(size, limit)
        came(len(chunk))
        if not message.get("more_body", False):
            return chunk if not chunks else b"".join([*chunks, chunk])
        chunks.append(chunk)
