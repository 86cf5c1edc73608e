"""Small checks of values that come from outside."""

from __future__ import annotations

import reprlib
from typing import Any

from shortlist.errors import BadInput


def cut(text: object, length: int = 60) -> str:
    """`text` short enough for one sentence, and on one line."""
    whole = reprlib.repr(text) if isinstance(text, list | dict) else str(text)  # neither deep nor long
    short = whole if len(whole) <= length else f"{whole[:length]}..."
    return (
        short if short.isprintable() else "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)
    )


def is_count(value: Any) -> bool:
    """Whether `value` is a whole number from 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def parse_object(content: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    """The object at `key`, or an empty one; raises BadInput when it is something else."""
    value = content.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{key} of {where} must be an object")
    return value
