"""Plan `adaptive`: frequent classes are scored at once, tails of the others only where they may hold an answer."""

from __future__ import annotations

from copy import copy
from functools import partial
from itertools import compress

import numpy as np

from shortlist.bundle.reader import INDEX, Bundle
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import Plan, chunk_rows, take_best
from shortlist.plans.common.tally import Tally
from shortlist.runtime.session import Graph

TOP = ["top_logits", "top_ids"]
ONE = np.array([1])
LISTED = ["logits", "clusters"]
HEAD = [*TOP, "clusters"]
FUSED = [*TOP, "opened"]


class AdaptivePlan(Plan):
    """Over head.onnx and one graph a tail; exact: the answer is that of all classes.

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

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the head and every tail."""
        index = bundle.tensors(INDEX)
        self.classes = bundle.manifest.classes
        self.sections: list[IdArray] = np.split(index["ids"], index["offsets"][1:-1])
        self.sizes = [ids.size for ids in self.sections]
        opened = partial(Graph, device=device, threads=threads, prepack=True)
        names = [f"{number:04d}" for number in range(len(self.sections) - 1)]
        self.head = opened(bundle.graph("head"))
        self.exact = [opened(bundle.graph(f"tail-{name}")) for name in names]
        self.tails = [
            opened(bundle.graph(f"preview-{name}")) if bundle.has_graph(f"preview-{name}") else exact
            for name, exact in zip(names, self.exact, strict=True)
        ]
        self.fused = opened(bundle.graph("fused")) if bundle.has_graph("fused") else None
        self.one_head = np.array(self.sizes[:1], np.int32)
        self.tally: Tally = Tally(len(self.tails))

    def topk(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """See Plan.topk; `scored` is the size of the head and of the tails opened."""
        if legal.restricts:
            return self.answer_listed(contexts, k, legal)
        wanted = np.array([k])
        if self.fused is not None and len(contexts) == 1 and k <= self.sizes[0]:
            return self.answer_fused(self.fused, contexts, wanted)
        logits, ids, clusters = self.head.run_outputs(HEAD, {"context": contexts, "k": wanted})
        normalizer = zeros(logits)
        if len(contexts) == 1:
            return self.answer_row(contexts, wanted, clusters, PlanResult(ids, logits, normalizer, self.one_head))
        scored = np.full(len(contexts), self.sizes[0], np.int32)
        return self.answer_rows(contexts, wanted, clusters, PlanResult(ids, logits, normalizer, scored))

    def answer_fused(self, fused: Graph, contexts: FloatArray, wanted: IdArray) -> PlanResult:
        """A single row [1, d], k up to the head's size. Equals `answer_row`, but with one call."""
        logits, ids, opened = fused.run_outputs(FUSED, {"context": contexts, "k": wanted})
        chosen = opened[0].tolist()
        self.tally.one(sum(chosen))
        scored = self.sizes[0] + sum(compress(self.sizes[1:], chosen))
        return PlanResult(ids, logits, zeros(logits), np.array([scored], np.int32))

    def answer_row(self, contexts: FloatArray, wanted: IdArray, clusters: FloatArray, head: PlanResult) -> PlanResult:
        """A single row [1, d] with its head's answer. Equals `answer_rows`, but with few calls of numpy."""
        logits, ids, scored, opened = head.logits, head.ids, self.sizes[0], 0
        bar = bar_of(logits, wanted)
        for tail, bound in enumerate(clusters[0].tolist()):
            if bound < bar:
                continue
            own = {"context": contexts, "cluster": clusters[:, tail], "k": wanted}
            logits, ids = self.tails[tail].run_outputs(TOP, own | {"best_logits": logits, "best_ids": ids})
            bar = bar_of(logits, wanted)
            scored, opened = scored + self.sizes[tail + 1], opened + 1
        self.tally.one(opened)
        if not opened:
            return head
        return PlanResult(ids, logits, head.log_normalizer, np.array([scored], np.int32))

    def answer_rows(self, contexts: FloatArray, wanted: IdArray, clusters: FloatArray, head: PlanResult) -> PlanResult:
        """Rows that open a tail go through its graph together, so that its weights are read once."""
        logits, ids, opened = head.logits, head.ids, np.zeros(len(contexts), np.int64)
        for tail, graph in enumerate(self.tails):
            short = logits.shape[1] < wanted[0]
            rows = np.flatnonzero(short | ~(clusters[:, tail] < logits[:, -1]))
            if rows.size == 0:
                continue
            own = {"context": contexts[rows], "cluster": clusters[rows, tail], "k": wanted}
            found = graph.run_outputs(TOP, own | {"best_logits": logits[rows], "best_ids": ids[rows]})
            if short:
                logits, ids = found
            else:
                logits[rows], ids[rows] = found
            head.scored[rows] += np.int32(self.sizes[tail + 1])
            opened[rows] += 1
        self.tally.many(opened)
        return PlanResult(ids, logits, head.log_normalizer, head.scored)

    def answer_listed(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """Rows with allow or ban lists: the same, over the logits of what is legal."""
        result = empty_result(len(contexts), k)
        heads, clusters = self.head.run_outputs(LISTED, {"context": contexts, "k": ONE})
        opened = np.zeros(len(contexts), np.int64)
        for row, head in enumerate(heads):
            chosen = self.answer_legal(contexts[row : row + 1], head, clusters[row], legal, row, result)
            result.scored[row] = self.sizes[0] + sum(self.sizes[tail + 1] for tail in chosen)
            opened[row] = len(chosen)
        result.log_normalizer[:] = zeros(heads)
        self.tally.many(opened)
        return result

    def answer_legal(
        self,
        context: FloatArray,
        head: FloatArray,
        clusters: FloatArray,
        legal: ClassFilter,
        row: int,
        result: PlanResult,
    ) -> list[int]:
        """One row: its answer into `result`; returns the tails opened. Those without a legal class stay closed."""
        chosen, k = [], result.ids.shape[1]
        ids, best = self.legal_best(head, 0, legal, row, k)
        for tail in range(len(self.exact)):
            if clusters[tail] < best[-1] or not legal.mask(self.sections[tail + 1], row).any():
                continue
            logits = self.tail_logits(tail, context, clusters[tail : tail + 1])[0]
            found_ids, found = self.legal_best(logits, tail + 1, legal, row, k)
            both, both_ids = np.concatenate([best, found]), np.concatenate([ids, found_ids])
            order = np.lexsort((both_ids, -both))[:k]
            ids, best = both_ids[order], both[order]
            chosen.append(tail)
        result.ids[row], result.logits[row] = ids, best
        return chosen

    def legal_best(
        self, logits: FloatArray, section: int, legal: ClassFilter, row: int, k: int
    ) -> tuple[IdArray, FloatArray]:
        """The k best legal classes of a section, from its logits [n]; -1 and -inf where there are fewer."""
        ids = self.sections[section]
        return take_best(np.where(legal.mask(ids, row), logits, np.float32(-np.inf)), ids, k)

    def tail_logits(self, tail: int, contexts: FloatArray, cluster: FloatArray) -> FloatArray:
        """[b, d], [b] -> [b, n]: every class of a tail."""
        rows = len(contexts)
        none = {"best_logits": np.empty((rows, 0), np.float32), "best_ids": np.empty((rows, 0), np.int64)}
        own = {"context": contexts, "cluster": cluster, "k": ONE}
        logits: FloatArray = self.exact[tail].run_outputs(["logits"], own | none)[0]
        return logits

    def log_normalizer(self, contexts: FloatArray) -> FloatArray:
        """See Plan.log_normalizer: the graphs normalise."""
        return zeros(self.head.run_outputs(["logits"], {"context": contexts, "k": ONE})[0])

    def distribution(self, contexts: FloatArray) -> FloatArray:
        """See Plan.distribution; every tail is opened."""
        logits = np.full((len(contexts), self.classes), -np.inf, np.float32)
        heads, clusters = self.head.run_outputs(["logits", "clusters"], {"context": contexts, "k": ONE})
        logits[:, self.sections[0]] = heads
        for tail, ids in enumerate(self.sections[1:]):
            logits[:, ids] = self.tail_logits(tail, contexts, clusters[:, tail])
        return logits

    def truth(self) -> Plan:
        """See Plan.truth: the same without previews."""
        if all(tail is exact for tail, exact in zip(self.tails, self.exact, strict=True)):
            return self
        whole = copy(self)
        whole.tails, whole.fused, whole.tally = self.exact, None, Tally(len(self.exact))
        return whole

    def max_rows(self) -> int:
        """See Plan.max_rows."""
        return chunk_rows(max(self.sizes))


def zeros(logits: FloatArray) -> FloatArray:
    """[B, m] -> [B]: the log-normaliser of log-probabilities, 0; NaN where they overflowed."""
    return logits[:, 0] - logits[:, 0]


def bar_of(logits: FloatArray, wanted: IdArray) -> float:
    """The k-th best so far of one row [1, m], best first; -inf where there are fewer."""
    return logits.item(-1) if logits.size == wanted.item() else -np.inf
