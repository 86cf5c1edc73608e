"""Exact logits of changed items: of all of them, or of the best, which int8 previews find."""

from __future__ import annotations

from typing import NamedTuple

from shortlist.core.results import FloatArray, IdArray

from .overlay import Snapshot


class ItemScores(NamedTuple):
    """Changed items with their exact logits: all of them, or the best.

    ids: [n], or of each row [B, n]. logits: [B, n], -inf where there is no item. log_sums: [B], of exp(logit) over all
    changed items. bounds: [B], no other changed item has a logit over it; None where there are no others.
    """

    ids: IdArray
    logits: FloatArray
    log_sums: FloatArray
    bounds: FloatArray | None = None

    @classmethod
    def find_all(cls, contexts: FloatArray, changes: Snapshot) -> ItemScores:
        """All items."""
        logits = changes.score(contexts)
        return cls(changes.ids, logits, changes.table.sum_logits(logits))

    @classmethod
    def find_best(cls, contexts: FloatArray, changes: Snapshot) -> ItemScores:
        """The best by previews, where there are; else all items."""
        items = changes.previewed_items
        if items is None:
            return cls.find_all(contexts, changes)
        best = items.find_best(contexts)
        return cls(changes.ids[best.ids], best.logits, best.log_sums, best.bounds)
