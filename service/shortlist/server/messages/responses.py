"""Responses, those of failures included."""

from __future__ import annotations

import logging
import uuid
from typing import NamedTuple

import orjson
from starlette.responses import Response as StarletteResponse

from shortlist.errors import Overloaded, ShortlistError, Unauthorized, UnsupportedEncoding
from shortlist.wire.open_inference import JSON_TYPE

from .headers import CONTENT_TYPE, Headers, make_length_header

INTERNAL_ERROR_STATUS = 500
log = logging.getLogger(__name__)


class Response(NamedTuple):
    """A whole response; the headers are complete."""

    status: int
    content: bytes
    headers: Headers


def make_json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> StarletteResponse:
    """JSON for a route, with exactly the content type that protocol clients compare."""
    return StarletteResponse(orjson.dumps(content), status, headers, JSON_TYPE)


def make_error_response(error: Exception) -> Response:
    """`{"error": "<one sentence>"}`; an unforeseen error goes to the log, and an id that finds it to the client."""
    if isinstance(error, ShortlistError):
        log.debug("%d: %s", error.status, error)
        status, sentence, headers = error.status, str(error), list_error_headers(error)
    else:
        request_id = uuid.uuid4().hex[:12]
        log.error("request %s failed", request_id, exc_info=error)
        status, headers = INTERNAL_ERROR_STATUS, []
        sentence = f"internal error in request {request_id}: the server's log says more"
    content = orjson.dumps({"error": sentence})
    return Response(status, content, [*headers, (CONTENT_TYPE, JSON_TYPE.encode()), make_length_header(content)])


def list_error_headers(error: ShortlistError) -> Headers:
    """What a client needs to mend it by itself."""
    if isinstance(error, Overloaded):
        return [(b"retry-after", str(error.retry_after).encode())]
    if isinstance(error, Unauthorized):
        return [(b"www-authenticate", b"Bearer")]
    return [(b"accept-encoding", error.accepted.encode())] if isinstance(error, UnsupportedEncoding) else []


def to_starlette(response: Response) -> StarletteResponse:
    """The same response, for a route to return."""
    copy = StarletteResponse(response.content, response.status)
    copy.raw_headers = response.headers
    return copy
