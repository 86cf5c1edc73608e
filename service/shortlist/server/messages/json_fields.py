"""Fields of a JSON body, checked one by one."""

from __future__ import annotations

from typing import Any

import orjson

from shortlist.core.checks import cut
from shortlist.errors import BadInput

MANY_LISTS = 1 << 16  # far more than rows in a request


def parse_json(text: memoryview | bytes) -> dict[str, Any]:
    """A JSON object; raises BadInput. Nesting is bounded by orjson."""
    if len(text) > MANY_LISTS and brackets(text) > MANY_LISTS:
        raise BadInput(f"the body has more than {MANY_LISTS} lists and objects: send numbers flat, or as binary data")
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadInput("the body must be a JSON object")
    return content


def brackets(text: memoryview | bytes) -> int:
    """Lists and objects, at most: millions of them, even empty, take the interpreter for seconds."""
    content = bytes(text)
    return content.count(b"[") + content.count(b"{")


def whole(k: Any) -> int:
    """The field k; its range is the head's to judge."""
    if not isinstance(k, int) or isinstance(k, bool):
        raise BadInput(f"k is {cut(k)}: send a whole number")
    return k


def flag(fields: dict[str, Any], name: str) -> bool:
    """A field that is true or false, false where it is missing; raises BadInput."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise BadInput(f"{name} is {cut(value)}: send true or false")
    return value
