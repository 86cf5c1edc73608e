"""Long lists written as JSON in pieces, so that the interpreter is held for a piece at a time and others go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import orjson

from shortlist.core.arrays import Array

PIECE_CELLS = 1 << 16  # some 5 ms of numbers


def keep_numbers(cells: Array) -> Array:
    """Write numbers as they are."""
    return np.ascontiguousarray(cells)


def make_json_list(cells: Array, convert: Callable[[Array], Any] = keep_numbers) -> Any:
    """What `orjson.dumps` writes as the list of `cells` [n] or [B, m]: each of them as `convert` makes it.

    Short ones are what `convert` makes of all; of long ones the text is made here.
    """
    if cells.size <= PIECE_CELLS:
        return convert(cells)
    step = max(1, PIECE_CELLS * len(cells) // cells.size)
    pieces = [
        orjson.dumps(convert(cells[start : start + step]), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
        for start in range(0, len(cells), step)
    ]
    return orjson.Fragment(b"[%b]" % b",".join(pieces))
