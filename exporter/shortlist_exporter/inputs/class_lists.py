"""Labels, names and sets of classes from files: JSON lists, or one a line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from shortlist.bundle.names import Names, resolve_names
from shortlist.core.results import IdArray
from shortlist.errors import BadInput, NotFound

JSON_SUFFIX = ".json"
UTF_8 = "utf-8-sig"  # without the byte-order mark that some editors begin a file with


def load_texts(path: Path) -> list[str]:
    """Load a JSON list of strings, or of a file of another ending its lines; raises NotFound or BadInput."""
    if not path.is_file():
        raise NotFound(f"there is no file at {path}")
    try:
        content = path.read_text(UTF_8)
        texts = json.loads(content) if path.suffix == JSON_SUFFIX else content.removesuffix("\n").split("\n")
    except (ValueError, RecursionError):
        raise BadInput(f"{path} cannot be read: give a JSON list of V strings, or V lines, in UTF-8") from None
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadInput(f"{path} must hold a JSON list of V strings")
    return texts


def load_set(text: str, names: Names | None) -> tuple[str, IdArray]:
    """The set of `NAME=FILE`: its name, and its ids [m]; raises BadInput, NotFound."""
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise BadInput(f"--set-file {text} is not NAME=FILE, as in --set-file shoes=shoes.txt")
    values = load_items(Path(path))
    if names is not None:
        values = find_named(f"set {name}", [str(value) for value in values], names)
    try:
        ids = np.array([int(value) for value in values], np.int64)
    except ValueError:
        raise BadInput(f"{path} holds names: give --names, too, or ids, one a line") from None
    except OverflowError:
        ids = np.array([-1])
    if ids.min(initial=0) < 0:
        raise BadInput(f"{path} holds a number that no class has: give ids from 0 on")
    return name, ids


def find_named(what: str, texts: list[str], names: Names) -> Any:
    """The ids of items by their names; raises BadInput."""
    try:
        return resolve_names(what, texts, names, "the bundle")
    except BadInput as error:
        raise BadInput(f"{error}: with --names give names") from None


def load_items(path: Path) -> list[Any]:
    """The ids or names in a file of a set: a JSON list, or one a line; raises NotFound, BadInput."""
    if path.suffix != JSON_SUFFIX:
        return [line for line in load_texts(path) if line]
    try:
        items = json.loads(path.read_text(UTF_8))
    except FileNotFoundError:
        raise NotFound(f"there is no file at {path}") from None
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or not all(type(item) in (int, str) for item in items):
        raise BadInput(f"{path} must hold a JSON list of ids or names")
    return items
