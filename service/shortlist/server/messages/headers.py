"""Headers of requests and responses."""

from __future__ import annotations

from collections.abc import Mapping

from shortlist.core.checks import cut
from shortlist.errors import BadInput, TooLarge
from shortlist.wire.open_inference import LENGTH_HEADER

RawHeaders = Mapping[bytes, bytes]
Headers = list[tuple[bytes, bytes]]
EncodedResponse = tuple[bytes, Headers]  # a response's body and its complete headers

CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING = b"content-type", b"content-length", b"content-encoding"
ACCEPT_ENCODING, FORWARDED_FOR = b"accept-encoding", b"x-forwarded-for"
HOST, AUTHORIZATION, TRANSFER_ENCODING = b"host", b"authorization", b"transfer-encoding"
JSON_LENGTH = LENGTH_HEADER.lower().encode()  # of the JSON at the start of a binary body


def read_content_length(headers: RawHeaders, limit: int) -> int:
    """Content-Length in bytes, 0 where there is none; raises BadInput, and TooLarge over `limit`."""
    text = headers.get(CONTENT_LENGTH, b"0").strip(b" \t")
    if not (text.isdigit() and len(text) < 20):
        raise BadInput(f"Content-Length is '{cut(text.decode('latin-1'))}': send the body's length in bytes")
    length = int(text)
    if length > limit:
        raise make_size_error(limit)
    return length


def make_size_error(limit: int) -> TooLarge:
    """Make the error for a body over `limit` bytes."""
    return TooLarge(f"the body is over the limit of {limit} bytes: send fewer rows in one request")


def make_length_header(content: bytes) -> tuple[bytes, bytes]:
    return CONTENT_LENGTH, str(len(content)).encode()
