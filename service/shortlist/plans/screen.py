"""Plan `screen`: a screen picks clusters, the classes of their candidate sets are scored."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..bundle import INDEX, Bundle
from ..exact_rows import ExactRows
from ..legal import UNRESTRICTED, Legal
from ..result import FloatArray, IdArray, PlanResult
from ..runtime import Graph
from ..selection import largest
from .base import Plan, chunk_rows, empty_result, log_sum_exp, take_best
from .single_row import MOST_COMPILED, SingleRow, compiled

DENSE_SHARE = 4
WIDEN = 4  # a second stage rescores at least 4 k candidates
OUTPUTS = ["top_logits", "top_index", "log_normalizer"]
UNIONS = 8192  # unions of sets that are remembered
PAIR = 2  # clusters that a single row's own way can open


class Union(NamedTuple):
    """Ascending `ids` of several sets, and their `positions` in those sets end to end."""

    ids: IdArray
    positions: IdArray


class ScreenPlan(Plan):
    """Over screen.onnx and one graph a cluster.

    screen.onnx: `context` [B, d] -> `scores` [B, r]. cluster-NNNN.onnx: `context` [B, d], `k` [1] -> `logits` [B, n],
    `top_logits` [B, k], `top_index` [B, k], `log_normalizer` [B]; with a second stage `context` -> `logits` alone.
    fused.onnx and any.onnx, where the bundle has them: see SingleRow; any.onnx then stands for the clusters' graphs.

    index.safetensors: `ids` of all sets end to end, ascending in each, `offsets` [r + 1], and `tail` [r], which is
    added to the log of a set's sum of exponentials to make up for the classes outside it. Options of the manifest:

    - `probes`: clusters that a query opens. A class in several sets is scored once.
    - `probe_margin`: queries whose two best clusters are closer than this open one more.
    - `second_stage`: the clusters' graphs give previews, of which the best `full_view` are rescored exactly.
    - `dense_margin`: queries whose two best clusters are closer than this go to dense, where the bundle has it.

    A margin is the difference of the two best scores over the size of the best.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the screen and every cluster's graph."""
        options, index = bundle.manifest.options, bundle.tensors(INDEX)
        self.classes = bundle.manifest.classes
        self.sets: list[IdArray] = np.split(index["ids"], index["offsets"][1:-1])
        self.tail: FloatArray = index["tail"]
        self.probes = int(options["probes"])
        self.probe_margin = float(options.get("probe_margin", 0.0))
        self.dense_margin = float(options.get("dense_margin", 0.0))
        self.second_stage = bool(options.get("second_stage", False))
        self.full_view = int(options.get("full_view", 0))
        self.screen = Graph(bundle.graph("screen"), device, threads, fixed=True)
        self.single = SingleRow(bundle, index, device, threads) if bundle.has_graph("any") else None
        names = [] if self.single else [f"cluster-{number:04d}" for number in range(len(self.sets))]
        self.clusters = [Graph(bundle.graph(name), device, threads, prepack=self.second_stage) for name in names]
        self.rows = ExactRows(bundle, device, threads)
        self.low_rank = Graph(bundle.graph("tail"), device, threads) if bundle.has_graph("tail") else None
        by_itself = self.single is not None and self.low_rank is None
        self.compiled = compiled(bundle, index) if by_itself and device == "cpu" else None
        self.sizes = np.array([ids.size for ids in self.sets], np.int32)
        self.smallest = int(self.sizes.min())
        self.most_rows = chunk_rows(max(len(self.sets), int(self.sizes.max())))
        self.union = lru_cache(maxsize=UNIONS)(self.union_of)

    def prefers_dense(self, k: int) -> bool:
        """See Plan.prefers_dense."""
        return k > self.classes // DENSE_SHARE

    def topk(self, contexts: FloatArray, k: int, legal: Legal) -> PlanResult:
        """See Plan.topk; `scored` is the number of classes scored exactly."""
        if len(contexts) == 1 and k <= self.smallest and self.single and self.low_rank is None and not legal.restricts:
            return self.answer_single(self.single, contexts, k)
        scores = self.screen(context=contexts)[0]
        result = self.answers(contexts, scores, k, legal)
        if self.low_rank is not None:
            self.add_tail(contexts, scores, result)
        return result

    def answer_single(self, single: SingleRow, contexts: FloatArray, k: int) -> PlanResult:
        """A single row. Equals the screen, then `answers`, but by fewer, warm calls; compiled where k is small."""
        found = self.compiled(contexts, k, self) if self.compiled and k <= MOST_COMPILED else None
        if found is not None:
            return found
        scores, clusters, best = single.best(contexts, k)
        count = self.count(margin(scores))
        if count == 1:
            return best
        if count == PAIR:
            return single.widened(contexts, clusters, best)
        return self.answers(contexts, self.screen(context=contexts)[0], k, UNRESTRICTED)

    def add_tail(self, contexts: FloatArray, scores: FloatArray, result: PlanResult) -> None:
        """Classes outside a row's clusters enter its normaliser by tail.onnx; rows that dense answered have all."""
        assert self.low_rank is not None
        logits = self.low_rank(context=contexts)[0]
        for row, count in enumerate(self.opened(scores)):
            if count:
                logits[row, self.union(best_clusters(scores[row], count)).ids] = -np.inf
                inside = result.log_normalizer[row]
                with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
                    result.log_normalizer[row] = np.logaddexp(inside, log_sum_exp(logits[row]))

    def answers(self, contexts: FloatArray, scores: FloatArray, k: int, legal: Legal) -> PlanResult:
        """`topk`, the low-rank tail left out."""
        if not legal.restricts:
            if len(contexts) == 1:
                return self.answer_row(contexts, scores, k)
            opened = self.opened(scores)
            if not self.second_stage:
                return self.answer_groups(contexts, scores, opened, k)
        else:
            opened = [max(1, count) for count in self.opened(scores)]
        result = empty_result(len(contexts), k)
        for row, count in enumerate(opened):
            self.answer(contexts[row], scores[row], count, legal, row, result)
        return result

    def answer_row(self, contexts: FloatArray, scores: FloatArray, k: int) -> PlanResult:
        """A single row [1, d]."""
        count = self.opened(scores)[0]
        cluster = int(scores.argmax())
        if count == 1 and not self.second_stage and k <= self.sizes[cluster]:
            return self.answer_cluster(contexts, cluster, k)
        result = empty_result(1, k)
        self.answer(contexts[0], scores[0], count, UNRESTRICTED, 0, result)
        return result

    def answer_groups(self, contexts: FloatArray, scores: FloatArray, opened: list[int], k: int) -> PlanResult:
        """Rows that open one cluster go through its graph together, so that its weights are read once."""
        result = empty_result(len(contexts), k)
        others = {row for row, count in enumerate(opened) if count != 1}
        for cluster, rows in groups(scores.argmax(axis=1), opened):
            if k <= self.sizes[cluster]:
                found = self.answer_cluster(contexts[rows], cluster, k)
                result.ids[rows], result.logits[rows] = found.ids, found.logits
                result.log_normalizer[rows], result.scored[rows] = found.log_normalizer, found.scored
            else:
                others.update(rows)
        for row in others:
            self.answer(contexts[row], scores[row], opened[row], UNRESTRICTED, row, result)
        return result

    def answer_cluster(self, contexts: FloatArray, cluster: int, k: int) -> PlanResult:
        """The k best of one cluster's set, for rows [b, d] that open it alone."""
        top, index, normalizer = self.ask(cluster, OUTPUTS, {"context": contexts, "k": np.array([k])})
        scored = np.full(len(contexts), self.sizes[cluster], np.int32)
        return PlanResult(self.sets[cluster][index], top, normalizer + self.tail[cluster], scored)

    def ask(self, cluster: int, outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
        """Outputs of one cluster's graph, or of the one for any."""
        return (
            self.single.cluster(cluster, outputs, inputs)
            if self.single
            else self.clusters[cluster].some(outputs, inputs)
        )

    def opened(self, scores: FloatArray) -> list[int]:
        """How many clusters each row opens; 0 for dense."""
        uneven = self.probe_margin or (self.dense_margin and self.fallback is not None)
        if not uneven or scores.shape[1] < 2:
            return [self.probes] * len(scores)
        two = np.partition(scores, scores.shape[1] - 2, axis=1)[:, -2:].tolist()
        return [self.count(margin((best, second))) for second, best in two]

    def count(self, margin: float) -> int:
        """How many clusters a row of this margin opens."""
        if margin < self.dense_margin and self.fallback is not None:
            return 0
        return min(self.probes + (margin < self.probe_margin), len(self.sets))

    def answer(
        self, context: FloatArray, scores: FloatArray, count: int, legal: Legal, row: int, result: PlanResult
    ) -> None:
        """One row by itself: by dense, over `count` clusters, or over what its lists leave."""
        if count == 0:
            self.answer_dense(context, legal, row, result)
        elif legal.restricts:
            self.answer_listed(context, scores, count, legal, row, result)
        else:
            self.answer_union(context, scores, count, row, result)

    def answer_union(self, context: FloatArray, scores: FloatArray, count: int, row: int, result: PlanResult) -> None:
        """The union of the best clusters' sets."""
        order = best_clusters(scores, count)
        union = self.union(order)
        if union.ids.size < result.ids.shape[1]:
            self.answer_listed(context, scores, count, UNRESTRICTED, row, result)
            return
        inputs = {"context": context[None]} if self.second_stage else {"context": context[None], "k": np.array([1])}
        parts = [self.ask(cluster, ["logits"], inputs)[0][0] for cluster in order]
        write = self.answer_previewed if self.second_stage else self.finish
        write(context, np.concatenate(parts)[union.positions], union.ids, order[0], row, result)

    def answer_previewed(
        self, context: FloatArray, previews: FloatArray, ids: IdArray, cluster: int, row: int, result: PlanResult
    ) -> None:
        """The second stage: exact scores for the best previews [n] of classes `ids` [n]."""
        k = result.ids.shape[1]
        kept = largest(previews, min(previews.size, max(self.full_view, WIDEN * k)))
        exact = self.rows.of(context, ids[kept])
        result.scored[row] = kept.size
        result.ids[row], result.logits[row] = take_best(exact, ids[kept], k)
        previews[kept] = exact
        result.log_normalizer[row] = log_sum_exp(previews) + self.tail[cluster]

    def answer_listed(
        self, context: FloatArray, scores: FloatArray, count: int, legal: Legal, row: int, result: PlanResult
    ) -> None:
        """An allow list whole, whatever the screen says; else clusters until k classes are legal, at last all."""
        k = result.ids.shape[1]
        wanted = legal.allowed(row)
        for probes in range(count, len(scores) + 1):
            ids = self.union(best_clusters(scores, probes)).ids
            ids = ids if wanted is None else np.union1d(ids, wanted)
            if wanted is not None or legal.mask(ids, row).sum() >= k:
                break
        else:
            ids = np.arange(self.classes)
        logits = self.rows.of(context, ids)
        inside = np.isin(ids, self.union(best_clusters(scores, count)).ids)
        result.scored[row] = ids.size
        result.log_normalizer[row] = log_sum_exp(logits[inside]) + self.tail[scores.argmax()]
        legal_logits = np.where(legal.mask(ids, row), logits, np.float32(-np.inf))
        result.ids[row], result.logits[row] = take_best(legal_logits, ids, k)

    def answer_dense(self, context: FloatArray, legal: Legal, row: int, result: PlanResult) -> None:
        """A row that the screen is not sure of."""
        assert self.fallback is not None
        own = self.fallback.topk(context[None], result.ids.shape[1], legal.rows(row, row + 1))
        result.ids[row], result.logits[row] = own.ids[0], own.logits[0]
        result.log_normalizer[row], result.scored[row] = own.log_normalizer[0], own.scored[0]

    def finish(
        self, context: FloatArray, logits: FloatArray, ids: IdArray, cluster: int, row: int, result: PlanResult
    ) -> None:
        """Write a row's answer from the exact logits of its candidates. Overwrites `logits`."""
        del context  # nothing is left to score
        result.scored[row] = ids.size
        result.ids[row], result.logits[row] = take_best(logits, ids, result.ids.shape[1])
        result.log_normalizer[row] = log_sum_exp(logits) + self.tail[cluster]

    def union_of(self, clusters: tuple[int, ...]) -> Union:
        """The union of several sets."""
        return Union(*np.unique(np.concatenate([self.sets[cluster] for cluster in clusters]), return_index=True))

    def log_normalizer(self, contexts: FloatArray) -> FloatArray:
        """See Plan.log_normalizer."""
        return self.topk(contexts, 1, UNRESTRICTED).log_normalizer

    def parts(self) -> list[IdArray]:
        """See Plan.parts: the clusters' candidate sets."""
        return self.sets

    def routes(self, contexts: FloatArray) -> list[tuple[int, ...]]:
        """See Plan.routes."""
        scores = self.screen(context=contexts)[0]
        return [best_clusters(own, count) for own, count in zip(scores, self.opened(scores), strict=True)]

    def width(self, k: int) -> int:
        """See Plan.width: a k over the smallest set may widen it; previews are kept as in `answer_previewed`."""
        if k > self.smallest:
            return -k
        return max(self.full_view, WIDEN * k) if self.second_stage else 0

    def max_rows(self) -> int:
        """See Plan.max_rows."""
        return self.most_rows


def margin(best: Sequence[float]) -> float:
    """By how much the best of the two best scores leads, over its size; of a single cluster, by everything."""
    return math.inf if len(best) == 1 else (best[0] - best[1]) / (abs(best[0]) or 1.0)


def best_clusters(scores: FloatArray, count: int) -> tuple[int, ...]:
    """The `count` best clusters of one row [r], best first."""
    order: list[int] = np.argsort(-scores, kind="stable")[:count].tolist()
    return tuple(order)


def groups(clusters: IdArray, opened: list[int]) -> Iterator[tuple[int, list[int]]]:
    """Cluster and its rows, over the rows that open one cluster alone."""
    chosen: dict[int, list[int]] = {}
    for row, (cluster, count) in enumerate(zip(clusters.tolist(), opened, strict=True)):
        if count == 1:
            chosen.setdefault(cluster, []).append(row)
    yield from chosen.items()
