"""Rows that were hidden and added, by the native library: how much they weigh, and the best of all that are left."""

from __future__ import annotations

from ctypes import Structure, byref, c_float, c_int64, c_void_p, cast, pointer

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, IntArray, PlanResult, empty_result

from .exact_rows import CompiledGather
from .growing_previews import GrowingPreviews
from .lists import point_at_lists
from .native.arguments import check_memory, get_address, point_at
from .native.library import require_kernels
from .primitives.arrays import as_carray

WORK = "to score rows that were hidden or added"  # that memory may lack for


class RowSetStruct(Structure):
    """`struct row_set` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [
        *((name, c_void_p) for name in ("rows", "places", "ends", "previews", "scale", "shift")),
        *((name, c_int64) for name in ("count", "moment")),
        *((name, c_float) for name in ("largest_norm", "largest_rounding")),
    ]


class ChangesStruct(Structure):
    """`struct changes` of kernels.h."""

    _fields_ = [
        *((name, c_void_p) for name in ("hidden", "items", "item_ids", "hidden_since")),
        *((name, c_int64) for name in ("classes", "moment")),
    ]


class RowSet:
    """Some rows of a layer at a moment: all are scored exactly, or the heaviest by previews. Threads may share it."""

    def __init__(
        self,
        rows: CompiledGather,
        places: IdArray,
        previews: GrowingPreviews | None = None,
        ends: IntArray | None = None,
        moment: int = 0,
    ) -> None:
        """places: [n] of the rows. previews: of these first of all. ends: [n or more], when each counts no more."""
        self.kernels = rows.kernels
        blocks = (None, None, None) if previews is None else (previews.previews, previews.scale, previews.shift)
        self.arrays = rows, places, ends, blocks  # must live as long as their addresses are used
        lengths = (0.0, 0.0) if previews is None else (previews.largest_norm, previews.largest_rounding)
        addresses = (
            cast(rows.table, c_void_p).value,
            get_address(places, np.int64, "places"),
            get_address(ends, np.int32, "ends"),
            *map(get_address, blocks, (np.uint8, np.float32, np.float32), ("previews", "scale", "shift")),
        )
        self.struct = RowSetStruct(*addresses, places.size, moment, *lengths)

    def sum(self, contexts: FloatArray) -> FloatArray:
        """[B] float32, the logs of the sums of exp(logit) over the rows, for `contexts` [B, d]; -inf of none."""
        sums = np.full(len(contexts), -np.inf, np.float32)
        if sums.size:
            arguments = byref(self.struct), point_at(as_carray(contexts)), len(contexts), point_at(sums)
            check_memory(self.kernels.sum_row_set(*arguments), WORK)
        return sums


class CompiledMerge:
    """Merges answers of a layer with what became of it. Threads may share it."""

    def __init__(self, hidden: RowSet, items: RowSet, item_ids: IdArray, hidden_since: IntArray, moment: int) -> None:
        """hidden: rows of the layer that count no more. items: rows that do as well, with `item_ids` [n].

        hidden_since: [V] int32, the moment from which on each class is hidden. moment: of this look at them.
        """
        self.kernels, self.arrays = require_kernels(), (hidden, items, item_ids, hidden_since)
        self.structs = pointer(hidden.struct), pointer(items.struct)
        addresses = get_address(item_ids, np.int64, "item_ids"), get_address(hidden_since, np.int32, "hidden_since")
        sets = [cast(each, c_void_p) for each in self.structs]
        self.struct = byref(ChangesStruct(*sets, *addresses, hidden_since.size, moment))

    def __call__(self, base: PlanResult, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best of what `base` [B, n] has and is not hidden, and of items that are not banned.

        base: the layer's answers to `contexts` [B, d], with normalisers that are estimates; its risk is that of the
        result. `scored` is -1 for a row that this leaves undecided, and whose other numbers mean nothing.
        """
        result = empty_result(len(contexts), k)
        result.risk = base.risk
        depth = base.ids.shape[1]
        best = as_carray(base.ids), as_carray(base.logits)
        arrays = as_carray(contexts), *best, as_carray(base.log_normalizer), as_carray(base.scored)
        written = result.ids, result.logits, result.log_normalizer, result.scored
        lists = point_at_lists(class_filter, len(contexts))
        contexts_at, *others = map(point_at, (*arrays, *written))
        arguments = self.struct, lists, contexts_at, len(contexts), depth, k, *others
        check_memory(self.kernels.merge_changes(*arguments), WORK)
        return result
