"""Plan `full`: every class is scored. Other plans fall back to it."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from shortlist.bundle.reader import Bundle
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, PlanResult, empty_result
from shortlist.kernels.dense_rows import CompiledLayer, CompiledRanking, DenseRowAnswers, LayerAnswers
from shortlist.kernels.row_answers import RowAnswers
from shortlist.plans.common.base import Plan, chunk_rows, take_best
from shortlist.plans.common.normalizer import log_sum_exp
from shortlist.runtime.lazy import Lazy
from shortlist.runtime.session import Graph

DENSE_CHUNK_BYTES = 32 << 20  # a matrix product gains from rows more than from cached logits


def open_packed(bundle: Bundle, role: str, threads: int) -> Graph:
    """The graph for several rows on the CPU, opened when they first come: it packs a copy of the weights."""
    return Graph(bundle.late_graph(role), "cpu", threads, prepack=True)


class FullPlan(Plan):
    """The dense layer: dense.onnx, `context` [B, d] -> `logits` [B, V]; or another graph like it, by its role."""

    role: ClassVar[str] = "dense"

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open dense.onnx over the mapped weights."""
        del fallback  # it is dense itself
        self.classes, self.dim, self.max_k = bundle.manifest.classes, bundle.manifest.dim, bundle.manifest.max_k
        self.device, self.threads = device, threads
        self.single = Graph(bundle.graph(self.role), device, threads, prepack=False, fixed=True)
        self.many = Lazy(partial(open_packed, bundle, self.role, threads))
        self.ranking = CompiledRanking.open(threads)
        has_layer = self.role == FullPlan.role and device == "cpu"  # for single rows, where it is the faster
        self.layer = CompiledLayer.open(bundle, threads) if has_layer else None

    def logits(self, contexts: FloatArray) -> FloatArray:
        """[B, d] -> [B, V] float32, logit scale and soft-cap applied, padded classes -inf."""
        if len(contexts) == 1 and self.layer is not None:
            return self.layer.score(contexts)
        is_few = len(contexts) == 1 or self.device != "cpu"  # of one row, mapped weights are read faster
        graph = self.single if is_few else self.many()
        logits: FloatArray = graph(context=contexts)[0]
        return logits

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best of all classes; `scored` is V."""
        return self.rank(self.logits(contexts), k, class_filter)

    def rank(self, logits: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best permitted classes of `logits` [B, V], which are overwritten."""
        ranking = self.ranking
        return rank_rows(logits, k, class_filter) if ranking is None else ranking.rank(logits, k, class_filter)

    def open_row_answers(self) -> RowAnswers | None:
        """By compiled loops: from the context where they are the faster, else from logits."""
        if self.ranking is None or self.device != "cpu":
            return None
        limits = self.max_k, self.max_rows(), self.threads
        if self.layer is not None:
            return LayerAnswers(self.layer, self.logits, *limits)
        return DenseRowAnswers(self.logits, self.dim, self.classes, *limits)

    def compute_distribution(self, contexts: FloatArray) -> FloatArray:
        return self.logits(contexts)

    def width(self, k: int) -> int:
        """0: every class is scored, whatever k."""
        del k
        return 0

    def max_rows(self) -> int:
        return chunk_rows(self.classes, DENSE_CHUNK_BYTES)


def rank_rows(logits: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
    """The k best permitted classes of `logits` [B, V], by numpy, where there is no library; overwrites `logits`."""
    result = empty_result(len(logits), k)
    result.scored.fill(logits.shape[1])
    for row, some in enumerate(logits):
        result.ids[row], result.logits[row] = take_best(class_filter.restrict(some, row), None, k)
        result.log_normalizer[row] = log_sum_exp(some)
    return result
