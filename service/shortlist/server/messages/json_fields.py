"""Fields of a JSON body, checked one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import orjson

from shortlist.core.checks import cut
from shortlist.errors import BadInput, TooLarge

MAX_BRACKETS = 1 << 16  # far more lists and objects than a request has rows
MAX_MEMORY_FACTOR = 24  # bytes of memory for a byte of JSON, while it is parsed: 23 were measured, of small objects


def parse_json(text: memoryview | bytes) -> dict[str, Any]:
    """A JSON object; raises BadInput. orjson bounds the nesting."""
    if len(text) > MAX_BRACKETS and count_brackets(text) > MAX_BRACKETS:
        raise BadInput(f"the body has more than {MAX_BRACKETS} lists and objects: send numbers flat, or as binary data")
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the body is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise BadInput("the body must be a JSON object")
    return content


def make_json_size_error(size: int, limit: int) -> TooLarge:
    """Make the error for JSON of `size` bytes over `limit`: parsing it would hold up everybody else."""
    return TooLarge(f"the JSON has {size} bytes, over the limit of {limit}: send numbers as binary data, or fewer")


def count_brackets(text: memoryview | bytes) -> int:
    """At least as many as there are lists and objects: millions of them, even empty, take seconds to parse."""
    content = bytes(text)
    return content.count(b"[") + content.count(b"{")


def read_flag(fields: dict[str, Any], name: str) -> bool:
    """A field that is true or false, false where it is missing; raises BadInput."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise BadInput(f"{name} is {cut(value)}: send true or false")
    return value


def check_setting_names(changes: Mapping[str, Any], names: Collection[str], kind: str) -> None:
    """Raise BadInput at the first setting that is not one of `names`. kind: of settings, for the message."""
    unknown = next((name for name in changes if name not in names), None)
    if unknown is not None:
        raise BadInput(f"there is no {kind} setting '{cut(unknown)}': known are {', '.join(names)}")
