"""The small JSON bodies of what operators ask: objects, or nothing at all."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from shortlist.server.engine.body_reading import read_small_body
from shortlist.server.messages.json_fields import parse_json
from shortlist.wire.open_inference import JSON_TYPE

from .dependencies import get_service, read_headers

MAX_FIELDS_BYTES = 64 << 10  # parsed in the event loop


async def read_optional_fields(request: Request) -> dict[str, Any]:
    """The fields of a body that may be empty, whatever its content type; see `read_small_body`."""
    headers = read_headers(request)  # holds nothing: operators are heard however busy the server is
    body = await read_small_body(get_service(request), request.receive, headers, MAX_FIELDS_BYTES)
    return parse_json(body) if body else {}


def describe_optional_body(**fields: dict[str, Any]) -> dict[str, Any]:
    """The documentation of such a body; each field: its JSON schema."""
    content = {JSON_TYPE: {"schema": {"type": "object", "properties": fields}}}
    return {"requestBody": {"required": False, "content": content}}
