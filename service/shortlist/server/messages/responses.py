"""Responses, those of failures included."""

from __future__ import annotations

import logging
from typing import NamedTuple

import orjson
from starlette.responses import Response as StarletteResponse

from shortlist.errors import NotReady, Overloaded, ShortlistError, Unauthorized, UnsupportedEncoding
from shortlist.wire.open_inference import JSON_TYPE

from .headers import CONTENT_TYPE, Headers, make_length_header
from .request_ids import REQUEST_ID, RequestIds

INTERNAL_ERROR_STATUS = 500
NO_IDS = RequestIds()
log = logging.getLogger(__name__)


class Response(NamedTuple):
    """A whole response; the headers are complete."""

    status: int
    content: bytes
    headers: Headers


def make_json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> StarletteResponse:
    """JSON for a route, with exactly the content type that protocol clients compare."""
    return StarletteResponse(orjson.dumps(content), status, headers, JSON_TYPE)


def make_error_response(error: Exception, ids: RequestIds = NO_IDS) -> Response:
    """`{"error": "<one sentence>"}`; an unforeseen error goes to the log, and an id that finds it to the client.

    ids: of the request, by which the log and the response's X-Request-Id name it.
    """
    request_id = ids.request
    if isinstance(error, ShortlistError):
        log.debug("%d: %s (request %s, trace %s)", error.status, error, ids.request, ids.trace)
        status, sentence, headers = error.status, str(error), list_error_headers(error)
    else:
        request_id = ids.name_request()
        log.error("request %s failed (trace %s)", request_id, ids.trace or "-", exc_info=error)
        status, headers = INTERNAL_ERROR_STATUS, []
        sentence = f"internal error in request {request_id}: the server's log says more"
    if request_id:
        headers = [*headers, (REQUEST_ID, request_id.encode())]
    content = orjson.dumps({"error": sentence})
    return Response(status, content, [*headers, (CONTENT_TYPE, JSON_TYPE.encode()), make_length_header(content)])


def make_drain_error() -> NotReady:
    """The error of a request that the end of the drain cuts off."""
    return NotReady("the server stops, and has no time left for this request: send it to another, or again later")


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
