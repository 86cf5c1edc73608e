"""Request bodies as bytes, never longer than the limit."""

from __future__ import annotations

from fastapi import Request

from .errors import TooLarge


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; raises TooLarge before reading where Content-Length tells, else while reading."""
    announced = request.headers.get("content-length", "0")
    if announced.isascii() and announced.isdigit() and int(announced) > limit:
        raise too_large(limit)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise too_large(limit)
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def too_large(limit: int) -> TooLarge:
    """The error that names the limit."""
    return TooLarge(f"the body is over the limit of {limit} bytes: send fewer rows a request")
