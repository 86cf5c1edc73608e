"""The small JSON bodies of what operators ask: objects, or nothing at all."""

from __future__ import annotations

import time
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from shortlist.errors import BadInput
from shortlist.server.messages.body import check_no_encoding
from shortlist.server.messages.json_fields import parse_json
from shortlist.wire.open_inference import JSON_TYPE

from .dependencies import get_service

MAX_FIELDS_BYTES = 64 << 10  # parsed in the event loop


async def read_optional_fields(request: Request) -> dict[str, Any]:
    """The fields of a body that may be empty, whatever its content type; raises BadInput, TooLarge, SlowBody."""
    service, headers = get_service(request), dict(request.scope["headers"])
    check_no_encoding(headers)
    limit = min(MAX_FIELDS_BYTES, service.settings.body_limit)
    try:  # holds nothing: operators are heard however busy the server is
        body = await service.bodies.read(request.receive, headers, time.perf_counter(), None, limit)
    except ClientDisconnect:
        raise BadInput("the connection closed before the whole body had come: send it again") from None
    return parse_json(body) if body else {}


def describe_optional_body(**fields: dict[str, Any]) -> dict[str, Any]:
    """The documentation of such a body; each field: its JSON schema."""
    content = {JSON_TYPE: {"schema": {"type": "object", "properties": fields}}}
    return {"requestBody": {"required": False, "content": content}}
