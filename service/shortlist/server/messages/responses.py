"""Responses in JSON, errors included."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import orjson
from starlette.responses import Response

from shortlist.errors import Overloaded, ShortlistError, Unsupported
from shortlist.wire.open_inference import JSON_TYPE

from .compression import ACCEPTED
from .headers import CONTENT_LENGTH, Headers

INTERNAL = 500
log = logging.getLogger(__name__)


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
