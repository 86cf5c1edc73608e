"""The answers of shards, looked at before they are merged: whatever a shard sends, nothing else goes wrong by it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from shortlist.core.arrays import Array
from shortlist.core.checks import cut
from shortlist.core.results import NO_CLASS

from .exchange import Question
from .ranges import ClassRange

UNREADABLE = SafetensorError, KeyError, TypeError, ValueError  # what `load` raises
OPTIONAL = {"weights"}  # arrays that an answer has where there are biases

Form = tuple[npt.DTypeLike, tuple[int, ...]]  # dtype and shape of an array


class AnswerRules(NamedTuple):
    """What every answer of one shard keeps to. part: the classes that it has. max_k: the most that it gives a row."""

    part: ClassRange
    max_k: int

    def read(self, message: Any, question: Question) -> dict[str, Array]:
        """The arrays of the answer to a question, by name; raises ValueError that says what is wrong with them."""
        try:
            arrays = load(message)
        except UNREADABLE as error:
            raise ValueError(f"it is no message of arrays: {cut(error)}") from None
        for name, form in self.list_forms(question).items():
            if name in arrays or name not in OPTIONAL:
                check_form(name, arrays.get(name), form)
        if question.ids is None:
            self.check_ids(arrays["ids"])
        return arrays

    def list_forms(self, question: Question) -> dict[str, Form]:
        """The dtype and shape of each array of an answer."""
        if question.ids is not None:
            return {"logits": (np.float32, question.ids.shape)}
        rows = len(question.contexts)
        cells = rows, min(question.k, self.max_k)
        return {
            "ids": (np.int64, cells),
            "logits": (np.float32, cells),
            "log_normalizer": (np.float32, (rows,)),
            "scored": (np.int32, (rows,)),
            "weights": (np.float32, cells),
        }

    def check_ids(self, ids: Array) -> None:
        """Raise ValueError at an id of another shard's class, or of none."""
        if not ((ids == NO_CLASS) | ((ids >= self.part.start) & (ids < self.part.stop))).all():
            raise ValueError(f"ids are not all from {self.part.start} to {self.part.stop - 1}")


def check_form(name: str, array: Array | None, form: Form) -> None:
    """Raise ValueError unless an array is there, of this dtype and shape, and without NaN."""
    dtype, shape = form
    if array is None:
        raise ValueError(f"{name} is missing")
    if array.dtype != dtype or array.shape != shape:
        wanted = f"{np.dtype(dtype)} {list(shape)}"
        raise ValueError(f"{name} is {array.dtype} {list(array.shape)} in place of {wanted}")
    if array.dtype.kind == "f" and np.isnan(array).any():
        raise ValueError(f"{name} has NaN")
