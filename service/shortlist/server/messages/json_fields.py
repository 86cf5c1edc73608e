"""Fields of a JSON body, checked one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import orjson

from shortlist.core.checks import cut, show
from shortlist.errors import BadInput, TooLarge

MAX_BRACKETS = 1 << 16  # far more lists and objects than a request has rows
MAX_TEXTS = 1 << 17  # more than the ids of as many biases as fit a body
MAX_MEMORY_FACTOR = 24  # bytes of memory for a byte of JSON, while it is parsed: 23 were measured, of small objects


def parse_json(text: memoryview | bytes) -> dict[str, Any]:
    """A JSON object; raises BadInput. orjson bounds the nesting."""
    if len(text) > MAX_BRACKETS:
        check_counts(bytes(text))
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


def check_counts(text: bytes) -> None:
    """Raise BadInput for JSON of so many objects of Python that it takes long to parse, as no request needs them.

    It counts at least as many as there are: signs in texts, too.
    """
    if text.count(b"[") + text.count(b"{") > MAX_BRACKETS:
        raise BadInput(f"the body has more than {MAX_BRACKETS} lists and objects: send numbers flat, or as binary data")
    if text.count(b'"') > 2 * MAX_TEXTS:
        raise BadInput(f"the body has more than {MAX_TEXTS} names and texts: send fewer in one request")


def read_flag(fields: dict[str, Any], name: str) -> bool:
    """A field that is true or false, false where it is missing; raises BadInput."""
    value = fields.get(name, False)
    if not isinstance(value, bool):
        raise BadInput(f"{name} is {show(value)}: send true or false")
    return value


def refuse_draw_scores(fields: dict[str, Any]) -> None:
    """Raise BadInput where a request for draws wants scores, in fields of a body or parameters."""
    if read_flag(fields, "scores"):
        raise BadInput("scores are of the k best alone: leave them out of a request for a sample")


def check_setting_names(changes: Mapping[str, Any], names: Collection[str], kind: str) -> None:
    """Raise BadInput at the first setting that is not one of `names`. kind: of settings, for the message."""
    unknown = next((name for name in changes if name not in names), None)
    if unknown is not None:
        raise BadInput(f"there is no {kind} setting '{cut(unknown)}': known are {', '.join(names)}")
