"""What shards are asked and what they answer, each packed into one message: safetensors' own format.

All shards of a head get the same message, with ids of the whole layer; each takes out what concerns its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load, save

from shortlist.core.arrays import Array
from shortlist.core.bias import Bias
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, IntArray, PlanResult
from shortlist.core.row_lists import NO_LIST, Lists, RowLists

FIELDS = ("ids", "logits", "log_normalizer", "scored")


class Question(NamedTuple):
    """A search in a layer, or the logits of given ids.

    contexts: [B, d] float32. k: classes wanted; 0 where logits are. exact: by the dense layer. ids: [B, m] int64, whose
    logits are wanted; None where classes are. cut: the digest of the cut whose shards are asked.
    """

    contexts: FloatArray
    k: int
    exact: bool = False
    class_filter: ClassFilter = UNRESTRICTED
    bias: Bias | None = None
    ids: IdArray | None = None
    cut: bytes = b""


def pack_question(question: Question) -> bytes:
    """The question as one message."""
    arrays: dict[str, Array] = {
        "contexts": np.ascontiguousarray(question.contexts),
        "options": np.array([question.k, question.exact]),
        "cut": np.frombuffer(question.cut, np.uint8),
    }
    if question.ids is not None:
        arrays["ids"] = np.ascontiguousarray(question.ids)
    if question.bias is not None:
        arrays["bias.ids"] = np.ascontiguousarray(question.bias.ids)
        arrays["bias.weights"] = np.ascontiguousarray(question.bias.weights)
    class_filter = flatten_filter(question.class_filter, len(question.contexts))
    for name, lists in (("allow", class_filter.allow), ("ban", class_filter.ban)):
        arrays |= {} if lists is None else pack_lists(name, lists)
    return save(arrays)


def unpack_question(message: bytes) -> Question:
    """The question of a message."""
    arrays = load(message)
    k, exact = arrays["options"].tolist()
    bias = Bias(arrays["bias.ids"], arrays["bias.weights"]) if "bias.ids" in arrays else None
    class_filter = ClassFilter(unpack_lists("allow", arrays), unpack_lists("ban", arrays))
    cut = arrays["cut"].tobytes() if "cut" in arrays else b""
    return Question(arrays["contexts"], k, bool(exact), class_filter, bias, arrays.get("ids"), cut)


def flatten_filter(class_filter: ClassFilter, rows: int) -> ClassFilter:
    """The same filter of so many rows without hidden and forced classes: these become lists of allow and ban."""
    if class_filter.hidden is None and class_filter.forced is None:
        return class_filter
    numbers = range(rows)
    bans = [class_filter.list_bans(row) for row in numbers]
    return ClassFilter(
        collect_lists([class_filter.allow_list(row) for row in numbers]),
        collect_lists([np.concatenate(lists).astype(np.int64) if lists else None for lists in bans]),
    )


def collect_lists(lists: Sequence[IdArray | IntArray | None]) -> RowLists | None:
    """One list a row as a table; None where no row has one."""
    present = [ids for ids in lists if ids is not None]
    if not present:
        return None
    has_list = np.array([ids is not None for ids in lists])
    numbers = np.where(has_list, np.cumsum(has_list) - 1, NO_LIST)
    return RowLists.from_lists(list(present), numbers)


def pack_lists(name: str, lists: Lists) -> dict[str, Array]:
    """The arrays of lists of one kind."""
    if not isinstance(lists, RowLists):
        return {name: np.ascontiguousarray(lists)}
    return {f"{name}.ids": lists.ids, f"{name}.offsets": lists.offsets, f"{name}.numbers": lists.numbers}


def unpack_lists(name: str, arrays: dict[str, Array]) -> Lists | None:
    """The lists of one kind; None where there are none."""
    if f"{name}.ids" not in arrays:
        return arrays.get(name)
    return RowLists.make(*(arrays[f"{name}.{part}"] for part in ("ids", "offsets", "numbers")))


def pack_answer(result: PlanResult) -> bytes:
    """A shard's classes, with ids of the whole layer, as one message."""
    arrays = {name: getattr(result, name) for name in (*FIELDS, "weights")}
    return save({name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None})


def make_result(arrays: dict[str, Array]) -> PlanResult:
    """The classes of the arrays of an answer."""
    ids, logits, log_normalizer, scored = (arrays[name] for name in FIELDS)
    return PlanResult(ids, logits, log_normalizer, scored, arrays.get("weights"))


def pack_logits(logits: FloatArray) -> bytes:
    """Logits [B, m] float32, -inf for classes of other shards, as one message."""
    return save({"logits": np.ascontiguousarray(logits)})
