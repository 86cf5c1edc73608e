"""Classes outside a row's clusters in its normaliser, by logits of low rank."""

from __future__ import annotations

import numpy as np

from shortlist.core.results import FloatArray, IdArray
from shortlist.plans.common.normalizer import log_sum_exp
from shortlist.runtime.session import Graph

from .router import Route
from .sets import CandidateSets


class LowRankTail:
    """Over tail.onnx: `context` [B, d] -> `logits` [B, V] (L2S, appendix A.3)."""

    def __init__(self, graph: Graph, sets: CandidateSets) -> None:
        self.graph, self.sets = graph, sets

    def add(self, contexts: FloatArray, routes: list[Route], log_normalizer: FloatArray) -> FloatArray:
        """The `log_normalizer` [B] of `contexts` [B, d] with the classes outside each row's route added.

        Rows without a route are as they were.
        """
        logits, total = self.graph(context=contexts)[0], log_normalizer.copy()
        for row, route in enumerate(routes):
            if route:
                total[row] = add_others(logits[row], self.sets.unite(route).ids, total[row])
        return total

    def add_to_row(self, context: FloatArray, ids: IdArray, log_normalizer: np.float32) -> np.float32:
        """The log-normaliser of one `context` [d] over the classes `ids` [n], with all other classes added."""
        return add_others(self.graph(context=context[None])[0][0], ids, log_normalizer)


def add_others(logits: FloatArray, ids: IdArray, log_normalizer: np.float32) -> np.float32:
    """The log-normaliser of the classes `ids` [n], with all others by their low-rank `logits` [V], overwritten."""
    logits[ids] = -np.inf
    with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
        total: np.float32 = np.logaddexp(log_normalizer, log_sum_exp(logits))
    return total
