"""Kinds of text: which rows of a contexts file are of which, as the captures of several texts write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shortlist.core.results import IdArray
from shortlist.errors import BadInput

KINDS = "kinds"  # the metadata's key: JSON, names of kinds and the numbers of their documents

Kinds = dict[str, list[int]]


def parse_kinds(metadata: Mapping[str, str], path: Path) -> Kinds:
    """The documents of each kind by a contexts file's metadata; {} where it names none. Raises BadInput."""
    try:
        content = json.loads(metadata.get(KINDS, "{}"))
    except ValueError:
        content = None
    lists = list(content.values()) if isinstance(content, dict) else [None]
    if not all(isinstance(numbers, list) and all(type(number) is int for number in numbers) for numbers in lists):
        raise BadInput(f'{KINDS} in the metadata of {path} must be JSON like {{"news": [0, 1]}}: capture it again')
    assert isinstance(content, dict)
    return content


def find_kind_rows(documents: npt.NDArray[np.integer], kinds: Kinds) -> dict[str, IdArray]:
    """Ascending positions of the rows of each kind, of those that have any. documents: [n], each row's."""
    rows = {name: np.flatnonzero(np.isin(documents, numbers)) for name, numbers in kinds.items()}
    return {name: positions for name, positions in rows.items() if positions.size}
