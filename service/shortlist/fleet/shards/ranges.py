"""Ranges of classes: how a layer is cut, and what lists and biases of the whole layer say to one range."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from shortlist.core.bias import Bias
from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, IdArray, PlanResult
from shortlist.core.row_lists import Lists, RowLists
from shortlist.errors import BadInput


class ClassRange(NamedTuple):
    """The classes from `start` to `stop` - 1, whose ids in their shard begin at 0."""

    start: int
    stop: int

    def localize(self, ids: IdArray) -> IdArray:
        """Ids of the shard for ids of the layer; -1 for classes of other shards."""
        return np.where((ids >= self.start) & (ids < self.stop), ids - self.start, NO_CLASS)

    def localize_filter(self, class_filter: ClassFilter) -> ClassFilter:
        """What the allow and ban lists of a layer leave of the range."""
        return ClassFilter(self.localize_lists(class_filter.allow), self.localize_lists(class_filter.ban))

    def localize_lists(self, lists: Lists | None) -> Lists | None:
        """What lists of one kind, allow or ban, leave of the range, in the form that they have."""
        if lists is None:
            return None
        if not isinstance(lists, RowLists):
            return self.localize(lists)
        kept = (lists.ids >= self.start) & (lists.ids < self.stop)
        offsets = np.concatenate([[0], np.cumsum(kept)])[lists.offsets]
        return RowLists.make(lists.ids[kept] - self.start, offsets, lists.numbers)

    def localize_bias(self, bias: Bias | None) -> Bias | None:
        """The biases of the range's classes; None where it has none."""
        ids = None if bias is None else self.localize(bias.ids)
        if bias is None or ids is None or not (ids >= 0).any():
            return None
        return Bias(ids, np.where(ids >= 0, bias.weights, np.float32(0)))

    def globalize(self, result: PlanResult) -> PlanResult:
        """A shard's result with ids of the layer."""
        ids = np.where(result.ids >= 0, result.ids + self.start, NO_CLASS)
        return PlanResult(ids, result.logits, result.log_normalizer, result.scored, result.weights)


def cut_classes(classes: int, shards: int) -> list[ClassRange]:
    """So many ranges of nearly the same size, some with a class more where V is not divisible."""
    if not 1 <= shards <= classes:
        raise BadInput(f"{classes} classes cannot be cut into {shards} shards: give 1 to {classes}")
    starts = [-(-shard * classes // shards) for shard in range(shards + 1)]
    return [ClassRange(start, stop) for start, stop in itertools.pairwise(starts)]
