"""Request bodies, read with a limit, and responses."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive

from .answers import CONTENT_LENGTH, Headers
from .compression import ACCEPTED
from .errors import BadInput, Overloaded, ShortlistError, TooLarge, Unsupported
from .protocol import JSON_TYPE, cut

INTERNAL = 500
RawHeaders = Mapping[bytes, bytes]

log = logging.getLogger(__name__)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body of a request; see `read`. A compressed one raises Unsupported."""
    headers = dict(request.scope["headers"])
    encoding = headers.get(b"content-encoding", b"identity")
    if encoding != b"identity":
        raise Unsupported(f"content encoding '{cut(encoding.decode('latin-1'))}' is not served here: send plain JSON")
    announced(headers, limit)
    return await read(request.receive, limit)


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


def check_size(size: int, limit: int) -> None:
    """Raise TooLarge over the limit."""
    if size > limit:
        raise TooLarge(f"the body is over the limit of {limit} bytes: send fewer rows in one request")


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON, with exactly the content type that protocol clients compare."""
    return Response(orjson.dumps(content), status, headers, JSON_TYPE)


def error_response(error: Exception) -> Response:
    """`{"error": "<one sentence>"}`; what nobody foresaw goes to the log, and its id to the client."""
    if isinstance(error, ShortlistError):
        log.debug("%d: %s", error.status, error)
        return json_response({"error": str(error)}, error.status, error_headers(error))
    request_id = uuid.uuid4().hex[:12]
    log.error("request %s failed", request_id, exc_info=error)
    return json_response({"error": f"internal error in request {request_id}: the server's log says more"}, INTERNAL)


def failed(error: Exception) -> tuple[int, bytes, Headers]:
    """Status, body and headers of `error_response`."""
    response = error_response(error)
    headers = [header for header in response.raw_headers if header[0] != CONTENT_LENGTH]
    return response.status_code, bytes(response.body), headers


def with_length(headers: Headers, content: bytes) -> Headers:
    """`headers`, the body's length last."""
    if headers and headers[-1][0] == CONTENT_LENGTH:
        return headers
    return [*headers, (CONTENT_LENGTH, str(len(content)).encode())]


def error_headers(error: ShortlistError) -> dict[str, Any] | None:
    """What a client needs to mend it by itself."""
    if isinstance(error, Overloaded):
        return {"Retry-After": str(error.retry_after)}
    return {"Accept-Encoding": ACCEPTED} if isinstance(error, Unsupported) else None
