"""A batch of changes: items that are put, by vector, and items that are removed; and its bytes in the log."""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shortlist.core.checks import cut, is_count, show
from shortlist.core.results import FloatArray
from shortlist.errors import BadInput

Key = str | int  # an item's name, or its id where the model has no names

MAX_BATCH_ITEMS = 65_536
MAX_NAME_BYTES = 1024
MAX_ITEM_ID = (1 << 31) - 1
SIZES = struct.Struct("<II")  # bytes of the JSON and of the numbers of a batch


@dataclass(frozen=True, slots=True)
class ItemBatch:
    """Changes that are made together or not at all: first the removals, then the puts.

    put: [n] keys of items that are added, or whose vectors are replaced. vectors: [n, d] float32. biases: [n] float32,
    added to their inner products as the layer's biases are. remove: [m] keys; one that no item has changes nothing.
    source, sequence: whoever sends batches may number them, ascending; of each source a number is applied once.
    """

    put: list[Any] = field(default_factory=list)
    vectors: FloatArray = field(default_factory=lambda: np.empty((0, 0), np.float32))
    biases: FloatArray = field(default_factory=lambda: np.empty(0, np.float32))
    remove: list[Any] = field(default_factory=list)
    source: str = ""
    sequence: int | None = None

    @classmethod
    def make(
        cls,
        put: Any,
        vectors: FloatArray,
        remove: Any,
        *,
        biases: FloatArray | None = None,
        source: Any = "",
        sequence: Any = None,
    ) -> ItemBatch:
        """A batch of arguments that come from outside, once they are checked; raises BadInput."""
        put, remove = (check_list(what, keys) for what, keys in (("put", put), ("remove", remove)))
        check_distinct([*put, *remove])
        if vectors.ndim != 2 or len(vectors) != len(put):
            raise BadInput(f"vectors have shape {list(vectors.shape)} for {len(put)} items: send a vector for each")
        numbers = np.zeros(len(put), np.float32) if biases is None else biases.astype(np.float32, copy=False)
        if numbers.shape != (len(put),):
            raise BadInput(f"biases have shape {list(numbers.shape)} for {len(put)} items: send one number for each")
        check_source(source, sequence)
        rows = vectors.astype(np.float32, copy=False)
        if not (np.isfinite(rows).all() and np.isfinite(numbers).all()):
            raise BadInput("vectors or biases hold NaN or infinity: send numbers that float32 can hold")
        return cls(put, rows, numbers, remove, source, sequence)

    @property
    def size(self) -> int:
        """How many items it changes."""
        return len(self.put) + len(self.remove)

    def check(self, dim: int, *, names: bool) -> None:
        """Raise BadInput unless it fits a model of `dim` numbers a vector, whose items have `names`, or ids alone."""
        if self.put and self.vectors.shape[1] != dim:
            raise BadInput(f"vectors have {self.vectors.shape[1]} numbers and the model's have {dim}: send as many")
        check = check_name if names else check_id
        for key in (*self.put, *self.remove):
            check(key)

    def encode(self) -> bytes:
        """Its bytes in the log."""
        fields = {"put": self.put, "remove": self.remove, "source": self.source, "sequence": self.sequence}
        text = json.dumps(fields, separators=(",", ":")).encode()
        numbers = self.vectors.astype("<f4", copy=False).tobytes() + self.biases.astype("<f4", copy=False).tobytes()
        return SIZES.pack(len(text), len(numbers)) + text + numbers

    @classmethod
    def decode(cls, content: bytes, start: int) -> tuple[ItemBatch, int]:
        """The batch whose bytes begin at `start`, and where they end."""
        text_size, number_size = SIZES.unpack_from(content, start)
        middle = start + SIZES.size + text_size
        fields = json.loads(content[start + SIZES.size : middle])
        numbers = np.frombuffer(content, "<f4", number_size // 4, middle).astype(np.float32)
        count = len(fields["put"])
        vectors = numbers[: numbers.size - count].reshape(count, -1) if count else np.empty((0, 0), np.float32)
        return cls(**fields, vectors=vectors, biases=numbers[numbers.size - count :]), middle + number_size


def check_list(what: str, keys: Any) -> list[Any]:
    """`keys` as a list of names or of ids; raises BadInput."""
    if not isinstance(keys, list) or len(keys) > MAX_BATCH_ITEMS:
        raise BadInput(f"{what} must be a list of at most {MAX_BATCH_ITEMS} names or ids")
    return keys


def check_distinct(keys: list[Any]) -> None:
    """Raise BadInput where a batch changes an item twice, for then the order would matter."""
    try:
        repeated = len(set(keys)) < len(keys)
    except TypeError:  # of lists and objects, which are no keys
        raise BadInput("put and remove must hold names, or ids, alone") from None
    if repeated:
        key = next(key for key, count in Counter(keys).items() if count > 1)
        raise BadInput(f"item '{cut(key)}' stands twice in one batch: change it once")


def check_name(key: Any) -> None:
    """Raise BadInput unless an item may be called so."""
    if not isinstance(key, str):
        raise BadInput(f"{cut(key)} is no name, and the model's items have names: send them")
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise BadInput(f"the name {cut(key)!a} is not valid Unicode: send another") from None
    if not 1 <= size <= MAX_NAME_BYTES:
        raise BadInput(f"the name '{cut(key)}' has {size} bytes: give 1 to {MAX_NAME_BYTES}")


def check_id(key: Any) -> None:
    """Raise BadInput unless an item may have this id."""
    if not is_count(key) or key > MAX_ITEM_ID:
        raise BadInput(f"{show(key)} is no id, and the model was exported without names: send whole numbers from 0")


def check_source(source: Any, sequence: Any) -> None:
    """Raise BadInput for what numbers no batch."""
    if not isinstance(source, str) or len(source) > MAX_NAME_BYTES or not source.isprintable():
        raise BadInput(f"source is {show(source)}: send a short text, or leave it out")
    if sequence is not None and (not is_count(sequence) or sequence >= 1 << 63):
        raise BadInput(f"sequence is {show(sequence)}: send a whole number from 0, or leave it out")
