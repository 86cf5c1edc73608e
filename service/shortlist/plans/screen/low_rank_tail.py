"""Classes outside a row's clusters in its normaliser, by logits of low rank."""

from __future__ import annotations

import numpy as np

from shortlist.core.results import FloatArray
from shortlist.plans.common.base import log_sum_exp
from shortlist.runtime.session import Graph

from .router import Route
from .sets import CandidateSets


class LowRankTail:
    """Over tail.onnx: `context` [B, d] -> `logits` [B, V] (L2S, appendix A.3)."""

    def __init__(self, graph: Graph, sets: CandidateSets) -> None:
        self.graph, self.sets = graph, sets

    def add(self, contexts: FloatArray, routes: list[Route], log_normalizer: FloatArray) -> FloatArray:
        """The `log_normalizer` [B] of `contexts` [B, d] with the classes outside each row's route added.

        Rows without a route are as they were: dense answers them, over all classes.
        """
        logits, total = self.graph(context=contexts)[0], log_normalizer.copy()
        for row, route in enumerate(routes):
            if route:
                logits[row, self.sets.unite(route).ids] = -np.inf
                with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
                    total[row] = np.logaddexp(total[row], log_sum_exp(logits[row]))
        return total
