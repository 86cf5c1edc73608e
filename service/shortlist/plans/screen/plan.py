"""Plan `screen`: a screen picks clusters, the classes of their candidate sets are scored.

Three scorers answer one call, `score(contexts, k, settings, use_dense) -> PlanResult`: compiled loops, a single row's
two sessions, and the clusters' graphs, which take whatever the others leave. `scored` is TO_DENSE or TO_GRAPHS for rows
that a scorer has no answer for.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.bundle.settings import ScreenSettings
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult
from shortlist.kernels.row_answers import RowAnswers
from shortlist.kernels.screen import MAX_LOOP_PROBES, ScreenLoops
from shortlist.kernels.unscored import TO_DENSE, TO_GRAPHS
from shortlist.plans.common.base import (
    DENSE_DIVISOR,
    MAX_CALL_ROWS,
    MAX_SETS_K,
    RESCORED_PER_K,
    Plan,
    chunk_rows,
    run_by_chunks,
)
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.runtime.session import Graph

from .graph_scorer import GraphScorer
from .list_scorer import ListScorer
from .low_rank_tail import LowRankTail
from .router import ClusterRouter, Route
from .set_graphs import open_set_graphs
from .sets import CandidateSets
from .single_row import SingleRowScorer
from .term_tail import TermTail


class ScreenPlan(Plan):
    """Over screen.onnx and one graph a cluster; fused.onnx and any.onnx where the bundle has them.

    index.safetensors: `ids` of all sets end to end, ascending in each, `offsets` [r + 1], and `tail` [r], which is
    added to the log of a set's sum of exponentials to make up for the classes outside it. Settings: `ScreenSettings`;
    with `second_stage` the clusters' graphs give previews.
    """

    settings: ScreenSettings

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        self.settings, self.fallback = bundle.settings(ScreenSettings), fallback
        self.classes = bundle.manifest.classes
        index = bundle.tensors(INDEX_FILE)
        self.sets = CandidateSets(index)
        self.router = ClusterRouter(Graph(bundle.graph("screen"), device, threads, fixed=True))
        graphs = open_set_graphs(
            bundle, "cluster", self.sets.offsets, device, threads, prepack=self.settings.second_stage
        )
        low_rank = (
            LowRankTail(Graph(bundle.graph("tail"), device, threads), self.sets) if bundle.has_graph("tail") else None
        )
        exact, self.terms = ExactRows(bundle, device, threads), self.open_terms(bundle, device, threads)
        list_scorer = ListScorer(exact, self.sets, index["tail"], self.classes, low_rank, self.terms)
        self.graphs = GraphScorer(self.router, graphs, list_scorer, second_stage=self.settings.second_stage)
        self.single: SingleRowScorer | None = None
        self.loops: ScreenLoops | None = None
        if bundle.has_graph("fused") and low_rank is None:
            fused = Graph(bundle.graph("fused"), device, threads)
            self.single = SingleRowScorer(fused, graphs, self.sets, index["tail"], self.classes)
        if low_rank is None and device == "cpu":
            self.loops = ScreenLoops.open(bundle, index, threads)
        self.most_rows = chunk_rows(max(self.sets.count, self.sets.largest))

    def open_terms(self, bundle: Bundle, device: str, threads: int) -> TermTail | None:
        """What guesses the rest of a normaliser by terms; None for heads that have none."""
        limit = self.settings.tail_limit
        return None if limit is None else TermTail(Graph(bundle.graph("terms"), device, threads), limit)

    @property
    def has_previews(self) -> bool:
        return self.settings.second_stage

    def prefers_dense(self, k: int) -> bool:
        return k > self.classes // DENSE_DIVISOR

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best permitted classes of `contexts` [B, d]; `scored` is the number of classes scored exactly."""
        use_dense, sets = self.fallback is not None, self.sets
        full_view = max(self.settings.full_view, RESCORED_PER_K * k)
        plain = len(contexts) > 0 and k <= sets.smallest and not class_filter.restricts
        few = self.settings.probes <= MAX_LOOP_PROBES or sets.count <= MAX_LOOP_PROBES
        if plain and few and self.loops is not None and k <= MAX_SETS_K:
            result = self.loops.score(contexts, k, self.settings, use_dense, full_view)
            if self.terms is not None:
                self.terms.finish(result, contexts, self.settings.dense_tail if use_dense else None)
        elif plain and self.single is not None and len(contexts) == 1:
            result = self.single.score(contexts, k, self.settings, use_dense)
        elif 0 < len(contexts) <= self.most_rows:
            result = self.graphs.score(contexts, k, self.settings, use_dense, class_filter)
        else:
            return self.score_chunks(contexts, k, class_filter)
        # numpy's own minimum takes ten times as long for a single row
        return result if min(result.scored.tolist()) > 0 else self.complete(result, contexts, k, class_filter)

    def open_row_answers(self) -> RowAnswers | None:
        if self.loops is None or self.terms is not None:
            return None
        max_k = min(self.sets.smallest, MAX_SETS_K, self.classes // DENSE_DIVISOR)
        use_dense = self.fallback is not None
        return self.loops.open_row_answers(max_k, MAX_CALL_ROWS, self.settings, use_dense, self.count_exact)

    def count_exact(self, k: int) -> int:
        """How many classes a second stage scores exactly."""
        return max(self.settings.full_view, RESCORED_PER_K * k)

    def score_chunks(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """Rows [B, d] by graphs, as many at a time as the cache holds logits of, and by dense."""
        use_dense = self.fallback is not None

        def score(rows: FloatArray, lists: ClassFilter) -> PlanResult:
            return self.complete(self.graphs.score(rows, k, self.settings, use_dense, lists), rows, k, lists)

        return run_by_chunks(score, contexts, class_filter, self.most_rows)

    def complete(self, result: PlanResult, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """Fill in, by graphs or dense, the rows of a scorer's `result` for `contexts` [B, d] that it left open.

        A scorer leaves rows without lists alone to graphs.
        """
        left, unsure = np.flatnonzero(result.scored == TO_GRAPHS), np.flatnonzero(result.scored == TO_DENSE)
        if left.size:
            result.put(left, self.score_chunks(contexts[left], k, UNRESTRICTED))
        if unsure.size:
            dense = self.fallback
            assert dense is not None, "without dense no row goes there"
            step = 1 if self.settings.second_stage else dense.max_rows()  # a second stage scores its rows one by one
            answers = run_by_chunks(
                lambda rows, lists: dense.topk(rows, k, lists), contexts[unsure], class_filter.take(unsure), step
            )
            result.put(unsure, answers)
        return result

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        """As `topk` where a row's clusters hold its `ids` or dense answers it; else as `topk` with them allowed."""
        del logits
        result, routes = self.topk(contexts, 1, UNRESTRICTED), self.choose_routes(contexts)
        log_normalizer, by_dense = result.log_normalizer, result.scored == self.classes
        misses = cache(lambda route, given: self.misses(route, np.frombuffer(given, np.int64)))  # rows ask for the same
        rows = [i for i, route in enumerate(routes) if route and not by_dense[i] and misses(route, ids[i].tobytes())]
        if rows:
            log_normalizer[rows] = self.topk(contexts[rows], 1, ClassFilter(allow=ids[rows])).log_normalizer
        return log_normalizer

    def misses(self, route: Route, ids: IdArray) -> bool:
        """Whether some of `ids` [m], -1 pads, have no exact scores in a row of this route."""
        return self.settings.second_stage or not np.isin(ids[ids >= 0], self.sets.unite(route).ids).all()

    def list_parts(self) -> list[IdArray]:
        """Class ids [n] of each cluster's candidate set."""
        return self.sets.by_number

    def choose_routes(self, contexts: FloatArray) -> list[Route]:
        return self.router.route(contexts, self.settings, self.fallback is not None).routes

    def width(self, k: int) -> int:
        """How widely k classes are searched; a k over the smallest set may open more clusters, so it is alone."""
        if k > self.sets.smallest:
            return -k
        return self.count_exact(k) if self.settings.second_stage else 0

    def max_rows(self) -> int:
        """Rows in one call; loops keep no more of a row than the screen's scores."""
        return MAX_CALL_ROWS if self.loops else self.most_rows
