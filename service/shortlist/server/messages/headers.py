"""Headers of requests and responses."""

from __future__ import annotations

from collections.abc import Mapping

from shortlist.core.checks import cut
from shortlist.errors import BadInput, TooLarge
from shortlist.wire.open_inference import (
    LENGTH_HEADER,
)

RawHeaders = Mapping[bytes, bytes]

CONTENT_TYPE, CONTENT_LENGTH = b"content-type", b"content-length"
LENGTH = LENGTH_HEADER.lower().encode()
Headers = list[tuple[bytes, bytes]]


def announced(headers: RawHeaders, limit: int) -> int:
    """Content-Length in bytes, 0 where there is none; raises BadInput, and TooLarge over `limit`."""
    text = headers.get(b"content-length")
    if text is None:
        return 0
    if not (text.isdigit() and len(text) < 20):
        raise BadInput(f"Content-Length is '{cut(text.decode('latin-1'))}': send the body's length in bytes")
    length = int(text)
    check_size(length, limit)
    return length


def check_size(size: int, limit: int) -> None:
    """Raise TooLarge over the limit."""
    if size > limit:
        raise TooLarge(f"the body is over the limit of {limit} bytes: send fewer rows in one request")
