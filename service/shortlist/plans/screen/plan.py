"""Plan `screen`: a screen picks clusters, the classes of their candidate sets are scored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shortlist.bundle.reader import INDEX, Bundle
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import MOST_COMPILED, MOST_ROWS, Plan, by_chunks, chunk_rows, log_sum_exp, take_best
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.selection import largest
from shortlist.runtime.session import Graph

from .clusters import best_clusters, groups, margin, unions
from .single_row import SingleRow

if TYPE_CHECKING:
    from shortlist.kernels.screen import CompiledScreen

DENSE_SHARE = 4
WIDEN = 4  # a second stage rescores at least 4 k candidates
OUTPUTS = ["top_logits", "top_index", "log_normalizer"]
PAIR = 2  # clusters that loops, and a single row's own way, can open


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
        self.compiled = compiled(bundle, index, threads) if by_itself and device == "cpu" else None
        self.sizes = np.array([ids.size for ids in self.sets], np.int32)
        self.smallest = int(self.sizes.min())
        self.most_rows = chunk_rows(max(len(self.sets), int(self.sizes.max())))
        self.union = unions(self.sets)

    def prefers_dense(self, k: int) -> bool:
        """See Plan.prefers_dense."""
        return k > self.classes // DENSE_SHARE

    def topk(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """See Plan.topk; `scored` is the number of classes scored exactly."""
        plain = len(contexts) > 0 and k <= self.smallest and not legal.restricts
        if plain and self.compiled and k <= MOST_COMPILED and min(self.probes, len(self.sets)) <= PAIR:
            return self.answer_compiled(self.compiled, contexts, k)
        return self.by_graphs(contexts, k, legal)

    def answer_compiled(self, loops: CompiledScreen, contexts: FloatArray, k: int) -> PlanResult:
        """By loops, what they leave by graphs, and by dense what the screen is not sure of."""
        found = loops(contexts, k, self)
        if min(found.scored.tolist()) <= 0:  # numpy takes ten times as long for a single row
            unsure, left = np.flatnonzero(found.scored < 0), np.flatnonzero(found.scored == 0)
            if unsure.size:
                found.put(unsure, self.answer_unsure(contexts[unsure], k))
            if left.size:
                found.put(left, self.by_graphs(contexts[left], k, UNRESTRICTED))
        return found

    def by_graphs(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """The same without loops, some rows at a time."""
        if len(contexts) == 1 and k <= self.smallest and self.single and self.low_rank is None and not legal.restricts:
            return self.answer_single(self.single, contexts, k)
        return by_chunks(lambda rows, own: self.answer_chunk(rows, k, own), contexts, legal, self.most_rows)

    def answer_chunk(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """The screen, the clusters, the low-rank tail."""
        scores = self.screen(context=contexts)[0]
        result = self.answers(contexts, scores, k, legal)
        if self.low_rank is not None:
            self.add_tail(contexts, scores, result)
        return result

    def answer_single(self, single: SingleRow, contexts: FloatArray, k: int) -> PlanResult:
        """A single row. Equals the screen, then `answers`, but by fewer, warm calls."""
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

    def answers(self, contexts: FloatArray, scores: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
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
        """Rows of dense, and of each cluster that they open alone, go together, so that its weights are read once."""
        result = empty_result(len(contexts), k)
        unsure = [row for row, count in enumerate(opened) if count == 0]
        if unsure:
            result.put(unsure, self.answer_unsure(contexts[unsure], k))
        others = {row for row, count in enumerate(opened) if count > 1}
        for cluster, rows in groups(scores.argmax(axis=1), opened):
            if k <= self.sizes[cluster]:
                result.put(rows, self.answer_cluster(contexts[rows], cluster, k))
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
            else self.clusters[cluster].run_outputs(outputs, inputs)
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
        self, context: FloatArray, scores: FloatArray, count: int, legal: ClassFilter, row: int, result: PlanResult
    ) -> None:
        """One row by itself: by dense, over `count` clusters, or over what its lists leave."""
        if count == 0:
            result.put([row], self.answer_unsure(context[None], result.ids.shape[1]))
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
        self, context: FloatArray, scores: FloatArray, count: int, legal: ClassFilter, row: int, result: PlanResult
    ) -> None:
        """An allow list whole, whatever the screen says; else clusters until k classes are legal, at last all."""
        k = result.ids.shape[1]
        wanted = legal.allow_list(row)
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

    def answer_unsure(self, contexts: FloatArray, k: int) -> PlanResult:
        """Rows [b, d] that the screen is not sure of, by dense; with lists no row is."""
        dense = self.fallback
        assert dense is not None
        return by_chunks(lambda rows, own: dense.topk(rows, k, own), contexts, UNRESTRICTED, dense.max_rows())

    def finish(
        self, context: FloatArray, logits: FloatArray, ids: IdArray, cluster: int, row: int, result: PlanResult
    ) -> None:
        """Write a row's answer from the exact logits of its candidates. Overwrites `logits`."""
        del context  # nothing is left to score
        result.scored[row] = ids.size
        result.ids[row], result.logits[row] = take_best(logits, ids, result.ids.shape[1])
        result.log_normalizer[row] = log_sum_exp(logits) + self.tail[cluster]

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
        """See Plan.max_rows; loops keep no more of a row than the screen's scores."""
        return MOST_ROWS if self.compiled else self.most_rows


def compiled(bundle: Bundle, index: dict[str, Any], threads: int) -> CompiledScreen | None:
    """Rows' compiled loop; None without numba for this numpy, or with weights where it cannot read them."""
    try:
        from shortlist.kernels.screen import CompiledScreen
    except ImportError:
        return None
    return CompiledScreen(bundle, index, threads) if CompiledScreen.reads(bundle, index) else None
