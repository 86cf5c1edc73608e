"""Rows whose candidates depend on their lists or on a large k: scored exactly, class by class."""

from __future__ import annotations

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, PlanResult
from shortlist.plans.common.base import take_best
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.normalizer import log_sum_exp

from .low_rank_tail import LowRankTail
from .sets import CandidateSets
from .term_tail import TermTail


class ListScorer:
    """Over rows.onnx, or the loops that equal it."""

    def __init__(
        self,
        exact: ExactRows,
        sets: CandidateSets,
        tail: FloatArray,
        classes: int,
        low_rank_tail: LowRankTail | None,
        terms: TermTail | None,
    ) -> None:
        self.exact, self.sets, self.tail, self.classes = exact, sets, tail, classes
        self.low_rank_tail, self.terms = low_rank_tail, terms

    def score(
        self, context: FloatArray, scores: FloatArray, count: int, k: int, class_filter: ClassFilter, row: int
    ) -> PlanResult:
        """The k best permitted classes of one `context` [d] whose clusters have these `scores` [r].

        With an allow list, that list whole, whatever the screen says; else `count` clusters and then more, until k
        classes are permitted; at last all classes. The normaliser is over the first `count` clusters, and no less than
        all classes that are scored add up to. row: the row's number in `class_filter`.
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
        best_ids, best = take_best(permitted_logits, ids, k)
        log_normalizer = log_sum_exp(logits.copy())
        if self.low_rank_tail is not None:
            log_normalizer = self.low_rank_tail.add_to_row(context, ids, log_normalizer)
        elif ids.size < self.classes:  # else nothing is left to guess
            own = logits[np.isin(ids, inside)]
            guess = self.guess_normalizer(context, own, order[0])
            log_normalizer = np.maximum(log_normalizer, guess)
        return PlanResult(
            best_ids[None], best[None], np.array([log_normalizer], np.float32), np.array([ids.size], np.int32)
        )

    def guess_normalizer(self, context: FloatArray, logits: FloatArray, best: int) -> np.float32:
        """The log-normaliser of one `context` [d] whose clusters, of which this is the `best`, have `logits` [n]."""
        inside: np.float32 = log_sum_exp(logits) + self.tail[best]
        if self.terms is None:
            return inside
        guess: np.float32 = self.terms.guess(context[None], np.array([inside]))[0][0]
        return guess
