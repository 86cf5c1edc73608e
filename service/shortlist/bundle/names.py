"""Names of classes, as the ids of a catalogue's items: read and looked up in memory that is mapped.

Names stand end to end in UTF-8, so that reading one is a slice. They are looked up by their hashes of 64 bits in
ascending order: among ten million classes another text is taken for one of them once in 10^12 times. Nothing is made
for each class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.arrays import Array, holds_lists, is_nested, to_list, to_numpy
from shortlist.core.checks import cut
from shortlist.core.results import NO_CLASS, IdArray, Labels
from shortlist.errors import BadInput

TEXT, OFFSETS, HASHES, CLASSES = "name_text", "name_offsets", "name_hashes", "name_classes"  # roles in a bundle
NAME_ROLES = (TEXT, OFFSETS, HASHES, CLASSES)
HASH_BYTES = 8
TEXT_KIND = "U"  # numpy's letter of the dtypes of texts; those of objects may hold texts, too
PADDING = ""  # in rows of names of different lengths


class Names(NamedTuple):
    """The names of V classes.

    text: [n] uint8, their UTF-8 end to end. offsets: [V + 1] int64, where each begins. hashes: [V] uint64, ascending.
    classes: [V] int64, the class whose name has the hash at that place.
    """

    text: npt.NDArray[np.uint8]
    offsets: IdArray
    hashes: npt.NDArray[np.uint64]
    classes: IdArray

    @classmethod
    def make(cls, names: Sequence[str]) -> Names:
        """The names of classes 0, 1, ...; raises BadInput for an empty one, no text, and one that two classes have."""
        encoded = [encode_text(name, number) for number, name in enumerate(names)]
        empty = next((number for number, name in enumerate(encoded) if not name), None)
        if empty is not None:
            raise BadInput(f"class {empty} has an empty name: give every class one")
        if len(set(encoded)) < len(encoded):
            raise BadInput(f"two classes have the name '{cut(find_repeat(names))}': give each its own")
        offsets = np.cumsum([0, *map(len, encoded)])
        hashes = hash_names(encoded)
        assert np.unique(hashes).size == hashes.size, "names that differ share a hash of 64 bits"
        classes = np.argsort(hashes, kind="stable")
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets, hashes[classes], classes)

    def read(self, ids: IdArray) -> Labels:
        """The names of `ids`, as texts in an array of the same shape; None for an id of -1."""
        texts = [self.read_text(number) for number in ids.reshape(-1).tolist()]
        return np.array([*texts, None], np.object_)[:-1].reshape(ids.shape)

    def read_text(self, number: int) -> str | None:
        """The name of a class; None for -1."""
        return None if number < 0 else self.read_bytes(number).decode("utf-8", "replace")

    def find(self, names: Sequence[str]) -> IdArray:
        """The classes [m] that have these names; -1 for a name that no class has."""
        wanted = hash_names([encode_name(name) for name in names])
        places = np.minimum(np.searchsorted(self.hashes, wanted), self.hashes.size - 1)
        return np.where(self.hashes[places] == wanted, self.classes[places], NO_CLASS)

    def read_bytes(self, number: int) -> bytes:
        """The name of a class in UTF-8."""
        return self.text[self.offsets[number] : self.offsets[number + 1]].tobytes()


def require_names(names: Names | None, model: str) -> Names:
    """`names` themselves; raises BadInput where the model has none."""
    if names is None:
        raise BadInput(f"{model} was exported without names: ask for ids alone")
    return names


def encode_text(name: str, number: int) -> bytes:
    """The name of a class in UTF-8; raises BadInput for halves of surrogate pairs, by which nobody could ask."""
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise BadInput(f"the name of class {number} holds half a surrogate pair: give text that UTF-8 has") from None


def encode_name(name: str) -> bytes:
    """A name in UTF-8; halves of surrogate pairs, which no name has, become what no name is."""
    return name.encode("utf-8", "surrogatepass")


def hash_names(encoded: list[bytes]) -> npt.NDArray[np.uint64]:
    """The hashes [m] of names: BLAKE2b's of eight bytes, which nobody meets by chance."""
    digests = b"".join(blake2b(name, digest_size=HASH_BYTES).digest() for name in encoded)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def find_repeat(names: Sequence[str]) -> str:
    """The first of the names that occurs twice."""
    return next(name for name, count in Counter(names).items() if count > 1)


def has_names(values: Any) -> bool:
    """Whether lists of ids, flat or one a row, hold texts in place of ids; the first of them tells."""
    if holds_lists(values):
        values = list(values)
    if isinstance(values, list | tuple):
        first = next((row for row in values if not isinstance(row, list | tuple) or row), None)
        return has_names(first) or isinstance(first, str)
    dtype = getattr(values, "dtype", None)
    if dtype == np.object_:
        return isinstance(next(to_numpy(values).flat, None), str)
    return isinstance(dtype, np.dtype) and dtype.kind == TEXT_KIND


def resolve_names(
    what: str, values: Any, names: Names | None, model: str, *, unknown: bool = False, in_place: bool = False
) -> Any:
    """`values` with the ids of classes in place of their names; lists of ids come back as they are.

    values: one list for all rows, or one a row; of texts alone, or of ids alone. unknown: whether names that no class
    has are left out, as what is banned may be. in_place: whether an empty text, which pads, becomes -1 in its place and
    is not left out. Raises BadInput for others, and where the model has no names.
    """
    if not has_names(values):
        return values
    if names is None:
        raise make_names_error(what, model)
    rows = [to_list(row) for row in values]
    lists = rows if is_nested(rows) else [rows]
    ids = [find_ids(what, row, names, model, unknown=unknown) for row in lists]
    if not in_place:
        ids = [[number for number in row if number != NO_CLASS] for row in ids]
    return ids if is_nested(rows) else ids[0]


def make_names_error(what: str, model: str) -> BadInput:
    """The error for names where the model has none."""
    return BadInput(f"{what} holds names, and {model} was exported without: send ids")


def find_ids(what: str, texts: list[Any], names: Names, model: str, *, unknown: bool) -> list[int]:
    """The ids of one list of names, -1 for an empty text; raises BadInput. unknown: whether others may have -1, too."""
    if not {str}.issuperset(map(type, texts)):
        raise BadInput(f"{what} must hold names alone, or ids alone")
    ids: list[int] = names.find(texts).tolist()
    if unknown or NO_CLASS not in ids:
        return ids
    wrong = [text for text, number in zip(texts, ids, strict=True) if number == NO_CLASS and text != PADDING]
    if wrong:
        raise BadInput(f"{what} holds '{cut(wrong[0])}', which no class of {model} is called")
    return ids


def pad_names(what: str, values: Any) -> Array:
    """Lists of names, flat or one a row, as an array [m] or [B, m] of texts; raises BadInput."""
    rows = [to_list(row) for row in values]
    lists = rows if is_nested(rows) else [rows]
    if not all(isinstance(row, list) and {str}.issuperset(map(type, row)) for row in lists):
        raise BadInput(f"{what} must hold names alone, or ids alone")
    width = max(map(len, lists), default=0)
    texts = np.array([[*row, *[PADDING] * (width - len(row))] for row in lists], np.object_).reshape(len(lists), width)
    return texts if is_nested(rows) else texts[0]
