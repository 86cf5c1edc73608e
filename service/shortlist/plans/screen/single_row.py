"""A single row by graphs: the screen and the best cluster in one call, a second cluster in another."""

from __future__ import annotations

import numpy as np

from shortlist.bundle.settings import ScreenSettings
from shortlist.core.results import FloatArray, PlanResult
from shortlist.kernels.unscored import TO_DENSE, TO_GRAPHS
from shortlist.runtime.session import Graph

from .merge import SecondCluster, make_unscored, merge_second
from .router import count_clusters
from .set_graphs import SetGraph
from .sets import CandidateSets

FUSED_OUTPUTS = ["best_scores", "best_clusters", "top_logits", "top_index", "log_normalizer"]
SECOND_OUTPUTS = ["logits", "top_logits", "top_index"]


class SingleRowScorer:
    """Equals GraphScorer for one row over one or two clusters, but by fewer, warm sessions.

    fused.onnx: `context` [1, d], `k` [1] -> `best_scores`, `best_clusters` [1, 2] (of one cluster, one) and, of the
    best cluster, `top_logits`, `top_index` [1, k], `log_normalizer` [1].
    """

    def __init__(
        self, fused: Graph, graphs: list[SetGraph], sets: CandidateSets, tail: FloatArray, classes: int
    ) -> None:
        self.fused, self.graphs, self.sets, self.tail, self.classes = fused, graphs, sets, tail, classes

    def score(self, contexts: FloatArray, k: int, settings: ScreenSettings, use_dense: bool) -> PlanResult:
        """The k best classes of one row [1, d], k at most the smallest set's size.

        `scored` is TO_DENSE for a row that dense has to answer, TO_GRAPHS for one that opens more than two clusters.
        """
        inputs = {"context": contexts, "k": np.array([k])}
        scores, clusters, top, index, log_normalizer = self.fused.run_outputs(FUSED_OUTPUTS, inputs)
        count = count_clusters(scores.tolist(), self.sets.count, settings, use_dense)[0]
        if count not in (1, 2):
            return make_unscored(1, k, TO_DENSE if count == 0 else TO_GRAPHS)
        best: int = clusters.item(0)
        place = slice(best, best + 1)
        ids = self.sets.ids[index + self.sets.offsets[best]]
        scored = self.sets.sizes[place].copy()  # callers write into results
        first = PlanResult(ids, top, log_normalizer + self.tail[place], scored)
        if count == 1:
            return first
        # The union of two clusters: equals scoring it whole, but with one more call of a warm session
        second: int = clusters.item(1)
        graph, ends = self.graphs[second]
        logits, top, index = graph.run_outputs(SECOND_OUTPUTS, inputs | ends)
        new, ids = self.sets.mask_new(best, second), self.sets.by_number[second][index[0]]
        newcomers = SecondCluster(ids, top[0], new[index[0]], logits[0, new])
        return merge_second(first, newcomers, self.tail[best], self.classes)
