"""Texts as the bytes of a binary tensor of datatype BYTES: each in UTF-8 behind its length."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from shortlist.errors import BadInput

TEXT_DATATYPE = "BYTES"
SIZE_BYTES = 4  # of a text's length in bytes, little-endian


def join_texts(texts: Iterable[str]) -> bytes:
    """Join texts into bytes."""
    encoded = [text.encode() for text in texts]
    return b"".join(part for text in encoded for part in (len(text).to_bytes(SIZE_BYTES, "little"), text))


def split_texts(raw: memoryview, shape: tuple[int, ...]) -> npt.NDArray[np.object_]:
    """Split what `join_texts` joined into an array of str of this shape; raises BadInput where it is none."""
    texts: list[str] = []
    start, count = 0, math.prod(shape)
    while start < len(raw):
        if len(texts) == count:
            raise BadInput(f"there are more than {count} texts for shape {list(shape)}")
        start += SIZE_BYTES
        stop = start + int.from_bytes(raw[start - SIZE_BYTES : start], "little")
        if stop > len(raw):
            raise BadInput(f"a text of {stop - start} bytes begins at byte {start} of {len(raw)}")
        texts.append(str(raw[start:stop], "utf-8", "replace"))
        start = stop
    if len(texts) != count:
        raise BadInput(f"there are {len(texts)} texts for shape {list(shape)}")
    return np.array(texts, np.object_).reshape(shape)
