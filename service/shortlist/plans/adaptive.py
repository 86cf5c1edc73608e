"""Plan `adaptive`: frequent classes are scored at once, tails of the others only where they may hold an answer."""

from __future__ import annotations

from functools import partial
from itertools import compress
from typing import Self

import numpy as np

from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.bundle.settings import AdaptiveSettings, PlanSettings
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import Plan, chunk_rows, take_best
from shortlist.plans.common.tally import Tally
from shortlist.runtime.session import Graph

TOP_OUTPUTS = ["top_logits", "top_ids"]
K_OF_ONE = np.array([1])  # the graphs' input k, where only whole logits are read
LOGITS_OUTPUTS = ["logits", "clusters"]
HEAD_OUTPUTS = [*TOP_OUTPUTS, "clusters"]
FUSED_HEAD_OUTPUTS = [*TOP_OUTPUTS, "opened"]


class AdaptivePlan(Plan):
    """Searches by head.onnx and one graph for each tail. Without previews its answers are exact.

    head.onnx: `context` [B, d], `k` [1] -> `logits` [B, n], `top_logits`, `top_ids` [B, min(k, n)], `clusters` [B, J].
    tail-NNNN.onnx: `context` [b, d], `cluster` [b], `k` [1], `best_logits`, `best_ids` [b, m] so far -> `logits` [b, n]
    of its classes, `top_logits`, `top_ids`: the k best of its own and of those so far. Logits are log-probabilities.
    Those of a tail are its cluster's plus log-probabilities within it, so none of them is over the cluster's.
    preview-NNNN.onnx, where there is one, answers in place of the tail from candidates of a preview; allow and ban
    lists and given ids are always scored by the tail. fused.onnx, where there is one: all of it for a single row by one
    call. All are prepacked: that takes a quarter to a third of the time off, and the weights are few.

    index.safetensors: `ids` of the head and of each tail end to end, ascending in each, `offsets` [J + 2].

    Tails come in the order in which they were exported, the most frequent first; one is opened for the rows whose
    cluster may still hold one of their k best. By falling cluster logits a row would open 1 % fewer at most
    (docs/adaptive.md), but the rows of a batch would then read a tail's weights several times.
    """

    settings: AdaptiveSettings

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open the head and every tail."""
        self.settings, self.fallback = bundle.settings(AdaptiveSettings), fallback
        index = bundle.tensors(INDEX_FILE)
        self.classes = bundle.manifest.classes
        self.sections: list[IdArray] = np.split(index["ids"], index["offsets"][1:-1])
        self.sizes = [ids.size for ids in self.sections]
        open_graph = partial(Graph, device=device, threads=threads, prepack=True)
        names = [f"{number:04d}" for number in range(len(self.sections) - 1)]
        self.head = open_graph(bundle.graph("head"))
        self.exact = [open_graph(bundle.graph(f"tail-{name}")) for name in names]
        self.previews = {
            tail: open_graph(bundle.graph(f"preview-{name}"))
            for tail, name in enumerate(names)
            if bundle.has_graph(f"preview-{name}")
        }
        self.tails = [self.previews.get(tail, exact) for tail, exact in enumerate(self.exact)]
        self.fused = open_graph(bundle.graph("fused")) if bundle.has_graph("fused") else None
        self.tally: Tally = Tally(len(self.tails))

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best; `scored` is the size of the head and of the tails opened."""
        if class_filter.restricts:
            return self.search_permitted(contexts, k, class_filter)
        result = self.search(contexts, k)
        self.head.check_ids(result.ids, self.classes)
        return result

    def search(self, contexts: FloatArray, k: int) -> PlanResult:
        """As `topk`, without lists; the ids are those that the graphs return."""
        count = np.array([k])
        if len(contexts) == 1 and k <= self.sizes[0] and self.fused is not None and not self.leaves_previews_out:
            return self.search_fused(self.fused, contexts, count)
        logits, ids, clusters = self.head.run_outputs(HEAD_OUTPUTS, {"context": contexts, "k": count})
        normalizer = make_zero_normalizer(logits)
        head = PlanResult(ids, logits, normalizer, np.full(len(contexts), self.sizes[0], np.int32))
        open_tails = self.open_tails_of_row if len(contexts) == 1 else self.open_tails
        return open_tails(contexts, count, clusters, head)

    def search_fused(self, fused: Graph, contexts: FloatArray, count: IdArray) -> PlanResult:
        """A single row [1, d], k up to the head's size. Equals `open_tails_of_row`, but with one call."""
        logits, ids, opened = fused.run_outputs(FUSED_HEAD_OUTPUTS, {"context": contexts, "k": count})
        is_opened = opened[0].tolist()
        self.tally.count_row(sum(is_opened))
        scored = self.sizes[0] + sum(compress(self.sizes[1:], is_opened))
        return PlanResult(ids, logits, make_zero_normalizer(logits), np.array([scored], np.int32))

    def open_tails_of_row(
        self, contexts: FloatArray, count: IdArray, clusters: FloatArray, head: PlanResult
    ) -> PlanResult:
        """A single row [1, d] with its head's answer. Equals `open_tails`, but with few calls of numpy."""
        tails, logits, ids, scored, opened = self.choose_tails(), head.logits, head.ids, self.sizes[0], 0
        bar = find_bar(logits, count)
        for tail, bound in enumerate(clusters[0].tolist()):
            if bound < bar:
                continue
            inputs = {"context": contexts, "cluster": clusters[:, tail], "k": count}
            logits, ids = tails[tail].run_outputs(TOP_OUTPUTS, inputs | {"best_logits": logits, "best_ids": ids})
            bar = find_bar(logits, count)
            scored, opened = scored + self.sizes[tail + 1], opened + 1
        self.tally.count_row(opened)
        if not opened:
            return head
        return PlanResult(ids, logits, make_zero_normalizer(logits), np.array([scored], np.int32))

    def open_tails(self, contexts: FloatArray, count: IdArray, clusters: FloatArray, head: PlanResult) -> PlanResult:
        """Rows that open a tail go through its graph together, so that its weights are read once."""
        logits, ids, opened = head.logits, head.ids, np.zeros(len(contexts), np.int64)
        for tail, graph in enumerate(self.choose_tails()):
            short = logits.shape[1] < count[0]
            rows = np.flatnonzero(short | ~(clusters[:, tail] < logits[:, -1]))
            if rows.size == 0:
                continue
            inputs = {"context": contexts[rows], "cluster": clusters[rows, tail], "k": count}
            best = graph.run_outputs(TOP_OUTPUTS, inputs | {"best_logits": logits[rows], "best_ids": ids[rows]})
            if short:
                logits, ids = best
            else:
                logits[rows], ids[rows] = best
            head.scored[rows] += np.int32(self.sizes[tail + 1])
            opened[rows] += 1
        self.tally.count_rows(opened)
        return PlanResult(ids, logits, make_zero_normalizer(logits), head.scored)

    def search_permitted(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """Rows with allow or ban lists: the same, over the logits of what is permitted."""
        result = empty_result(len(contexts), k)
        heads, clusters = self.head.run_outputs(LOGITS_OUTPUTS, {"context": contexts, "k": K_OF_ONE})
        opened = np.zeros(len(contexts), np.int64)
        for row, head in enumerate(heads):
            tails = self.search_permitted_row(contexts[row : row + 1], head, clusters[row], class_filter, row, result)
            result.scored[row] = self.sizes[0] + sum(self.sizes[tail + 1] for tail in tails)
            opened[row] = len(tails)
        result.log_normalizer[:] = make_zero_normalizer(heads)
        overflows = np.isnan(result.logits).any(axis=1)  # of tails, where that of the head does not
        result.log_normalizer[overflows] = np.nan
        self.tally.count_rows(opened)
        return result

    def search_permitted_row(
        self,
        context: FloatArray,
        head: FloatArray,
        clusters: FloatArray,
        class_filter: ClassFilter,
        row: int,
        result: PlanResult,
    ) -> list[int]:
        """One row: its answer into `result`; returns the tails opened. Those without a permitted class stay closed."""
        tails, k = [], result.ids.shape[1]
        ids, best = self.take_permitted_best(head, 0, class_filter, row, k)
        for tail in range(len(self.exact)):
            if clusters[tail] < best[-1] or not class_filter.mask(self.sections[tail + 1], row).any():
                continue
            logits = self.score_tail(tail, context, clusters[tail : tail + 1])[0]
            tail_ids, tail_best = self.take_permitted_best(logits, tail + 1, class_filter, row, k)
            both, both_ids = np.concatenate([best, tail_best]), np.concatenate([ids, tail_ids])
            order = np.lexsort((both_ids, -both))[:k]
            ids, best = both_ids[order], both[order]
            tails.append(tail)
        result.ids[row], result.logits[row] = ids, best
        return tails

    def take_permitted_best(
        self, logits: FloatArray, section: int, class_filter: ClassFilter, row: int, k: int
    ) -> tuple[IdArray, FloatArray]:
        """The k best permitted classes of a section, from its logits [n]; -1 and -inf where there are fewer."""
        ids = self.sections[section]
        return take_best(np.where(class_filter.mask(ids, row), logits, np.float32(-np.inf)), ids, k)

    def score_tail(self, tail: int, contexts: FloatArray, cluster: FloatArray) -> FloatArray:
        """[b, d], [b] -> [b, n]: every class of a tail."""
        rows = len(contexts)
        none = {"best_logits": np.empty((rows, 0), np.float32), "best_ids": np.empty((rows, 0), np.int64)}
        inputs = {"context": contexts, "cluster": cluster, "k": K_OF_ONE}
        logits: FloatArray = self.exact[tail].run_outputs(["logits"], inputs | none)[0]
        return logits

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        """0: the graphs normalise."""
        del ids, logits
        return make_zero_normalizer(self.head.run_outputs(["logits"], {"context": contexts, "k": K_OF_ONE})[0])

    def compute_distribution(self, contexts: FloatArray) -> FloatArray:
        """Log-probabilities [B, V]; every tail is opened."""
        logits = np.full((len(contexts), self.classes), -np.inf, np.float32)
        heads, clusters = self.head.run_outputs(["logits", "clusters"], {"context": contexts, "k": K_OF_ONE})
        logits[:, self.sections[0]] = heads
        for tail, ids in enumerate(self.sections[1:]):
            logits[:, ids] = self.score_tail(tail, contexts, clusters[:, tail])
        return logits

    def make_exact_plan(self) -> Plan:
        """This plan without previews, so that every open tail is scored whole."""
        return self.with_settings(AdaptiveSettings(previews=False)) if self.previews else self

    def with_settings(self, settings: PlanSettings) -> Self:
        """A plan that counts the tails opened by itself."""
        other = super().with_settings(settings)
        other.tally = Tally(len(self.tails))
        return other

    @property
    def has_previews(self) -> bool:
        return bool(self.previews)

    @property
    def leaves_previews_out(self) -> bool:
        """Whether there are previews, which fused.onnx looks at, but the settings leave them out."""
        return not self.settings.previews and bool(self.previews)

    def choose_tails(self) -> list[Graph]:
        """The graph of each tail, by the settings."""
        return self.tails if self.settings.previews else self.exact

    def max_rows(self) -> int:
        return chunk_rows(max(self.sizes))


def make_zero_normalizer(logits: FloatArray) -> FloatArray:
    """[B, m] -> [B]: the log-normaliser of log-probabilities, 0; NaN where any of them overflowed."""
    best: FloatArray = logits.max(axis=1)
    return best - best


def find_bar(logits: FloatArray, count: IdArray) -> float:
    """The k-th best so far of one row [1, m], best first; -inf where there are fewer."""
    return logits.item(-1) if logits.size == count.item() else -np.inf
