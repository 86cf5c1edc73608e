"""Biases: log-weights that are added to the logits of some classes before the top k is taken."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.errors import BadInput

from .arrays import check_padding, to_id_array, to_numpy
from .checks import cut
from .filters import check_id_range, check_list_rows
from .results import NO_CLASS, FloatArray, IdArray


@dataclass(frozen=True, slots=True, eq=False)
class Bias:
    """Log-weights of some classes. ids: [1 or B, m] int64, padded with -1, none twice in a row. weights: float32."""

    ids: IdArray
    weights: FloatArray

    def __len__(self) -> int:
        """How many rows it is for; 1 where it is the same for all."""
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        """How many bytes its arrays take."""
        return self.ids.nbytes + self.weights.nbytes

    def __getitem__(self, part: slice | IdArray) -> Bias:
        """The bias of some of the rows; one for all rows stays as it is."""
        return self if len(self.ids) == 1 else Bias(self.ids[part], self.weights[part])

    def repeat(self, rows: int) -> Bias:
        """The bias as arrays of `rows` rows; one that is for all rows is repeated for each."""
        if len(self.ids) == rows:
            return self
        return Bias(np.repeat(self.ids, rows, axis=0), np.repeat(self.weights, rows, axis=0))


BiasLike = Bias | Mapping[Any, Any] | Sequence[Any] | None  # {id: weight}, one such a row, or (ids, weights)


def parse_bias(values: Any, rows: int | None = None, classes: int | None = None) -> Bias | None:
    """Convert a bias: {id: weight} for all rows, a list of such, or a pair (ids, weights) of arrays [m] or [rows, m].

    rows, classes: of the request and of the model, where they are known. None and what is empty give None. Raises
    BadInput for an id that is no class or that stands twice in a row, and for a weight that is not finite.
    """
    if values is None or isinstance(values, Bias):
        bias = values
    elif isinstance(values, Mapping):
        bias = pack_mappings([values], rows)
    elif isinstance(values, tuple) and len(values) == 2 and not isinstance(values[0], Mapping):
        bias = make_bias(*values)
    elif isinstance(values, list | tuple) and all(isinstance(each, Mapping) for each in values):
        bias = pack_mappings(values, rows)
    else:
        raise BadInput("bias must map ids to weights, for all rows or one map a row, or be a pair (ids, weights)")
    if bias is None or not bias.ids.size:
        return None
    if rows is not None:
        check_list_rows("bias", bias.ids, rows)
    if classes is not None:
        check_id_range("bias", bias.ids, classes)
    return bias


def make_bias(ids: npt.ArrayLike, weights: npt.ArrayLike) -> Bias:
    """A bias of two arrays of one shape, [m] or [rows, m]; raises BadInput."""
    id_array = np.atleast_2d(to_id_array("bias", ids))
    try:
        weight_array = np.atleast_2d(np.asarray(to_numpy(weights), np.float32))
    except (TypeError, ValueError):
        raise BadInput("weights of bias must be numbers, as many as ids") from None
    if id_array.shape != weight_array.shape:
        shapes = f"{list(id_array.shape)} and {list(weight_array.shape)}"
        raise BadInput(f"ids and weights of bias have shapes {shapes}: make them equal")
    check_weights(id_array, weight_array)
    check_repeats(id_array)
    return Bias(id_array, weight_array)


def pack_mappings(mappings: Sequence[Mapping[Any, Any]], rows: int | None = None) -> Bias | None:
    """A bias of one map a row, of `rows` where they are known; raises BadInput, also for keys that are no ids."""
    lengths = np.array([len(mapping) for mapping in mappings], np.int64)
    if not lengths.any():
        return None
    if rows is not None:
        check_list_rows("bias", mappings, rows)
    check_padding("bias", lengths)
    ids = np.full((len(mappings), lengths.max()), NO_CLASS)
    weights = np.zeros(ids.shape, np.float32)
    for row, mapping in enumerate(mappings):
        ids[row, : len(mapping)] = [parse_key(key) for key in mapping]
        weights[row, : len(mapping)] = parse_weights(list(mapping.values()))
    return make_bias(ids, weights)


def parse_key(key: Any) -> int:
    """A class id, which in JSON is text; raises BadInput."""
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 12:
        return int(key)
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and 0 <= key < 1 << 62:
        return int(key)
    raise BadInput(f"bias holds '{cut(key)}' in place of an id: give whole numbers from 0")


def parse_weights(values: list[Any]) -> FloatArray:
    """Weights [m] float32; raises BadInput."""
    try:
        if bool in map(type, values):
            raise TypeError
        numbers: FloatArray = np.frombuffer(array("f", values), np.float32)
        return numbers
    except (TypeError, OverflowError):
        raise BadInput("bias holds a weight that is no number of float32: give log-weights") from None


def check_weights(ids: IdArray, weights: FloatArray) -> None:
    """Raise BadInput at a weight that is not finite; use `ban` to exclude a class."""
    wrong = ~np.isfinite(weights) & (ids >= 0)
    if wrong.any():
        raise BadInput(f"bias of id {ids[wrong][0]} is not finite: give log-weights, and ban what is not wanted")


def check_repeats(ids: IdArray) -> None:
    """Raise BadInput at an id that stands twice in one row."""
    ordered = np.sort(ids, axis=1)
    repeats = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    if repeats.any():
        row, place = np.argwhere(repeats)[0]
        raise BadInput(f"bias row {row} holds id {ordered[row, place]} twice: add the weights up")
