"""Rows whose candidates depend on their lists or on a large k: scored exactly, class by class."""

from __future__ import annotations

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, PlanResult
from shortlist.plans.common.exact_rows import ExactRows

from .merge import rank_row
from .sets import CandidateSets


class ListScorer:
    """Over rows.onnx, or the loops that equal it."""

    def __init__(self, exact: ExactRows, sets: CandidateSets, tail: FloatArray, classes: int) -> None:
        self.exact, self.sets, self.tail, self.classes = exact, sets, tail, classes

    def score(
        self, context: FloatArray, scores: FloatArray, count: int, k: int, class_filter: ClassFilter, row: int
    ) -> PlanResult:
        """The k best permitted classes of one `context` [d] whose clusters have these `scores` [r].

        With an allow list, that list whole, whatever the screen says; else `count` clusters and then more, until k
        classes are permitted; at last all classes. The normaliser is over the first `count` clusters. row: the row's
        number in `class_filter`.
        """
        order = tuple(np.argsort(-scores, kind="stable").tolist())
        inside = self.sets.unite(order[:count]).ids
        allowed = class_filter.allow_list(row)
        for probes in range(count, len(order) + 1):
            ids = self.sets.unite(order[:probes]).ids if allowed is None else np.union1d(inside, allowed)
            mask = class_filter.mask(ids, row)
            if allowed is not None or mask.sum() >= k:
                break
        else:
            ids = np.arange(self.classes)
            mask = class_filter.mask(ids, row)
        logits = self.exact.score_row(context, ids)
        permitted_logits = np.where(mask, logits, np.float32(-np.inf))
        return rank_row(permitted_logits, ids, k, logits[np.isin(ids, inside)], self.tail[order[0]])
