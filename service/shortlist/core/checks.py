"""Small checks of values that come from outside the process."""

from __future__ import annotations

import operator
import reprlib
from pathlib import Path
from typing import Any

from shortlist.errors import BadInput, NotFound

MAX_PATH_CHARACTERS = 200  # in an error sentence


def cut(text: object, length: int = 60) -> str:
    """Cut `text` to `length` characters on one line, so that it fits into an error sentence."""
    whole = reprlib.repr(text) if isinstance(text, list | dict) else str(text)  # reprlib also limits the depth
    short = whole if len(whole) <= length else f"{whole[:length]}..."
    if short.isprintable():
        return short
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in short)


def show(value: object) -> str:
    """`value` in an error sentence: a text in quotes, since otherwise the text "5" reads like the number."""
    return f"'{cut(value)}'" if isinstance(value, str) else cut(value)


def parse_whole_number(what: str, value: Any) -> int:
    """Convert `value`, also an integer of numpy or torch, to int; raises BadInput naming `what`."""
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise BadInput(f"{what} is {show(value)}: give a whole number")


def require_utf8(path: Path) -> Path:
    """Return `path`; raises BadInput where its name is not UTF-8 or, as in an ASCII locale, is not read as that.

    ONNX Runtime takes paths as texts alone, and an answer in JSON could not name such a one.
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise BadInput(
            f"{cut(path, MAX_PATH_CHARACTERS)} is not UTF-8, as the paths of graphs have to be: rename the folder, or "
            "set LC_ALL=C.UTF-8 where it has another name in your shell"
        ) from None
    return path


def is_count(value: Any) -> bool:
    """True if `value` is a whole number, 0 or more, and no bool."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def parse_object(content: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    """Return the JSON object at `key`, {} where that is missing or null; raises BadInput if it is something else."""
    value = content.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"{key} of {where} must be an object")
    return value


def check_file(path: Path) -> None:
    """Raise BadInput if `path` is a folder, and NotFound if it is no file."""
    if path.is_dir():
        raise BadInput(f"{path} is a folder: give a file")
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
