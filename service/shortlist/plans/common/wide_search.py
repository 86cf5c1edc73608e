"""The wide search of plans with previews of all classes: for rows with lists, and for a k that asks for many."""

from __future__ import annotations

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result

from .base import take_best
from .exact_rows import ExactRows
from .normalizer import log_sum_exp
from .selection import find_largest


class WideSearch:
    """Scores exactly the best permitted classes by previews, beside those that a search without lists scores exactly.

    order: [m] int64, the ids that the previews' positions stand for.
    """

    def __init__(self, rows: ExactRows, order: IdArray) -> None:
        self.exact_rows, self.order = rows, order

    def search(
        self, contexts: FloatArray, previews: FloatArray, first: PlanResult, k: int, count: int, lists: ClassFilter
    ) -> PlanResult:
        """The k best permitted classes of `contexts` [B, d] among the `count` best of `previews` [B, m].

        first: the result of the search without lists, with all classes that it scored exactly. Its normaliser is
        raised where all exactly scored classes add up to more. `previews` and `first` are not changed.
        """
        result = empty_result(len(contexts), k)
        for row, context in enumerate(contexts):
            ids = self.choose_classes(previews[row], first.ids[row], count, lists, row)
            logits = self.exact_rows.score_row(context, ids)
            permitted = np.where(lists.mask(ids, row), logits, np.float32(-np.inf))
            result.ids[row], result.logits[row] = take_best(permitted, ids, k)
            result.log_normalizer[row] = np.maximum(first.log_normalizer[row], log_sum_exp(logits))
            result.scored[row] = max(first.scored[row], ids.size)
        return result

    def choose_classes(
        self, preview: FloatArray, first_ids: IdArray, count: int, lists: ClassFilter, row: int
    ) -> IdArray:
        """Ascending ids of one row's classes to score exactly; -1 pads `first_ids` [n]."""
        mask = lists.mask(self.order, row)
        positions = find_largest(np.where(mask, preview, np.float32(-np.inf)), min(preview.size, count))
        return np.union1d(self.order[positions[mask[positions]]], first_ids[first_ids >= 0])
