"""The small JSON bodies of what operators ask: objects, or nothing at all."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import ClientDisconnect, Request

from shortlist.errors import BadInput, SlowBody
from shortlist.server.messages.body import read_plain_body
from shortlist.server.messages.json_fields import parse_json
from shortlist.wire.open_inference import JSON_TYPE

from .dependencies import get_service


async def read_optional_fields(request: Request) -> dict[str, Any]:
    """The fields of a body that may be empty, whatever its content type; raises BadInput, TooLarge, SlowBody."""
    settings = get_service(request).settings
    try:
        async with asyncio.timeout(settings.body_timeout):
            body = await read_plain_body(request, settings.body_limit)
    except TimeoutError:
        raise SlowBody.after(settings.body_timeout) from None
    except ClientDisconnect:
        raise BadInput("the connection closed before the whole body had come: send it again") from None
    return parse_json(body) if body else {}


def describe_optional_body(**fields: dict[str, Any]) -> dict[str, Any]:
    """The documentation of such a body; each field: its JSON schema."""
    content = {JSON_TYPE: {"schema": {"type": "object", "properties": fields}}}
    return {"requestBody": {"required": False, "content": content}}
