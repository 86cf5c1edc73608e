"""Request bodies, read with a limit, and responses."""

from __future__ import annotations

import logging
import uuid

import orjson
from starlette.requests import Request
from starlette.responses import Response

from .errors import BadInput, ShortlistError, TooLarge, Unsupported
from .protocol import JSON_TYPE, cut

INTERNAL = 500

log = logging.getLogger(__name__)


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, at most `limit` bytes, refused as soon as it is known to be longer.

    Raises TooLarge, BadInput, Unsupported for a compressed one, ClientDisconnect.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise Unsupported(f"content encoding '{cut(encoding)}' is not served: send the body as it is")
    check_length(request.headers.get("content-length", "0"), limit)
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        check_size(size, limit)
        chunks.append(chunk)
    return b"".join(chunks)


def check_length(announced: str, limit: int) -> None:
    """Judge a body by its Content-Length."""
    if not (announced.isascii() and announced.isdigit() and len(announced) < 20):
        raise BadInput(f"Content-Length is '{cut(announced)}': send the body's length in bytes")
    check_size(int(announced), limit)


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
        headers = {"Accept-Encoding": "identity"} if isinstance(error, Unsupported) else None
        return json_response({"error": str(error)}, error.status, headers)
    request_id = uuid.uuid4().hex[:12]
    log.error("request %s failed", request_id, exc_info=error)
    return json_response({"error": f"internal error in request {request_id}: the server's log says more"}, INTERNAL)
