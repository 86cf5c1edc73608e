"""Rows by the clusters' graphs: any number of them, over any number of clusters, with lists and for any k."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from shortlist.bundle.settings import ScreenSettings
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, PlanResult
from shortlist.kernels.unscored import TO_DENSE
from shortlist.plans.common.base import RESCORED_PER_K
from shortlist.plans.common.selection import find_largest

from .list_scorer import ListScorer
from .merge import RowGroup, make_unscored, rank_row, scatter
from .router import ClusterRouter, Route
from .set_graphs import BEST_OUTPUTS, SetGraph


class GraphScorer:
    """Over screen.onnx and one graph a cluster.

    A cluster's graph: `context` [B, d], `k` [1] -> `logits` [B, n], `top_logits`, `top_index` [B, k] and
    `log_normalizer` [B]; with a second stage `context` -> `logits` alone, which are previews.
    """

    def __init__(
        self,
        router: ClusterRouter,
        graphs: list[SetGraph],
        list_scorer: ListScorer,
        *,
        second_stage: bool,
    ) -> None:
        self.router, self.graphs, self.list_scorer = router, graphs, list_scorer
        self.low_rank_tail, self.terms = list_scorer.low_rank_tail, list_scorer.terms
        self.exact, self.sets, self.tail = list_scorer.exact, list_scorer.sets, list_scorer.tail
        self.second_stage = second_stage

    def score(
        self,
        contexts: FloatArray,
        k: int,
        settings: ScreenSettings,
        use_dense: bool,
        class_filter: ClassFilter = UNRESTRICTED,
    ) -> PlanResult:
        """The k best permitted classes of `contexts` [B, d]; `scored` is TO_DENSE for rows that dense has to answer.

        A row with an allow list never goes to dense: all of that list is scored.
        """
        scores, routes = self.router.route(contexts, settings, use_dense)
        if class_filter.restricts and routes:
            return PlanResult.concat(
                [
                    self.list_scorer.score(contexts[row], scores[row], max(1, len(route)), k, class_filter, row)
                    if route or class_filter.allow_list(row) is not None
                    else make_unscored(1, k, TO_DENSE)
                    for row, route in enumerate(routes)
                ]
            )
        # Rows that open one and the same cluster go together, so that its weights are read once; others alone
        groups, together = [], defaultdict[int, list[int]](list)
        for row, route in enumerate(routes):
            if len(route) == 1 and k <= self.sets.sizes[route[0]] and not self.second_stage:
                together[route[0]].append(row)
            elif route:
                result = self.score_union(contexts[row : row + 1], scores[row], route, k, settings, use_dense)
                groups.append(RowGroup([row], result))
        groups += [RowGroup(rows, self.score_cluster(contexts[rows], i, k)) for i, rows in together.items()]
        result = scatter(groups, len(contexts), k)
        if self.low_rank_tail is not None:
            # The list scorer has added it already for rows whose sets hold fewer than k classes
            routes = [route if route and self.sets.unite(route).ids.size >= k else () for route in routes]
            result.log_normalizer = self.low_rank_tail.add(contexts, routes, result.log_normalizer)
        return result

    def score_cluster(self, contexts: FloatArray, cluster: int, k: int) -> PlanResult:
        """The k best classes of one cluster's set, for rows [b, d] that open it alone."""
        graph, place = self.graphs[cluster]
        inputs = {"context": contexts, "k": np.array([k])}
        top, index, log_normalizer = graph.run_outputs(BEST_OUTPUTS, inputs | place)
        scored = np.full(len(contexts), self.sets.sizes[cluster], np.int32)
        ids = self.sets.by_number[cluster][index]
        return PlanResult(ids, top, log_normalizer + self.tail[cluster], scored)

    def score_union(
        self, context: FloatArray, scores: FloatArray, route: Route, k: int, settings: ScreenSettings, use_dense: bool
    ) -> PlanResult:
        """The k best classes in the union of the route's sets, for one row [1, d] with these `scores` [r]."""
        ids, positions = self.sets.unite(route)
        if ids.size < k:
            return self.list_scorer.score(context[0], scores, len(route), k, UNRESTRICTED, 0)
        inputs = {"context": context} if self.second_stage else {"context": context, "k": np.array([1])}
        calls = (self.graphs[cluster] for cluster in route)
        logits = np.concatenate([graph.run_outputs(["logits"], inputs | place)[0][0] for graph, place in calls])[
            positions
        ]
        tail = self.tail[route[0]] if ids.size < self.list_scorer.classes else np.float32(0)
        if not self.second_stage:
            return rank_row(logits, ids, k, logits, tail)
        # These are previews: the best are scored exactly
        best = find_largest(logits, min(ids.size, max(settings.full_view, RESCORED_PER_K * k)))
        exact = self.exact.score_row(context[0], ids[best])
        logits[best] = exact
        result = rank_row(exact, ids[best], k, logits, tail)
        if self.terms is not None:
            self.terms.finish(result, context, settings.dense_tail if use_dense else None)
        return result
