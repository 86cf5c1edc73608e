"""Plan `mixture`: frequent classes are scored by all components, rare ones searched for by the components' mean."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np

from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.bundle.settings import MixtureSettings, PlanSettings
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import NO_CLASS, FloatArray, IdArray, PlanResult, empty_result
from shortlist.kernels.mixture import CompiledFront, Previewed
from shortlist.kernels.row_answers import RowAnswers
from shortlist.plans.common.base import Plan, take_best
from shortlist.plans.common.normalizer import cover_also, log_sum_exp
from shortlist.runtime.session import Graph

from .full import FullPlan
from .grouped.plan import MAX_GROUPED_K, GroupedPlan


class RestPlan(FullPlan):
    """The layer of the rare classes over `mean`: rest.onnx; classes are places among the rare."""

    role: ClassVar[str] = "rest"


class Front:
    """front.onnx: `context` [B, d] -> `mean` [B, d] and `logits` [B, S] of the frequent classes. Threads may share it.

    On the CPU loops compute the same. frequent, rare: [S] and [V - S] ids, ascending.
    """

    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the loops, and the graph, prepacked, for its weights are few."""
        self.frequent: IdArray = np.sort(bundle.tensors(INDEX_FILE)["frequent"])
        self.graph = Graph(bundle.graph("front"), device, threads, prepack=True)
        self.compiled = CompiledFront.open(bundle, threads, self.frequent) if device == "cpu" else None
        self.classes = bundle.manifest.classes
        self.is_rare = np.ones(self.classes, bool)
        self.is_rare[self.frequent] = False
        self.rare: IdArray = self.is_rare.nonzero()[0]

    def __call__(self, contexts: FloatArray) -> tuple[FloatArray, FloatArray]:
        """`mean` and `logits` of `contexts` [B, d]."""
        if self.compiled is not None:
            return self.compiled(contexts)
        if not len(contexts):  # ONNX Runtime multiplies no matrices without rows
            return contexts, np.empty((0, self.frequent.size), np.float32)
        mean, logits = self.graph(context=contexts)
        return mean, logits

    def preview(self, contexts: FloatArray, k: int, *, errors: bool = False) -> Previewed:
        """As a call, by previews where there are some, exact for all classes that may be among the k best frequent."""
        if self.compiled is not None:
            return self.compiled.preview(contexts, k, errors=errors)
        mean, logits = self(contexts)
        return Previewed(mean, logits, np.full(len(contexts), self.frequent.size, np.int32), None, None)

    def holds(self, context: FloatArray, logits: FloatArray) -> bool:
        """Whether exact `logits` [S] of the frequent classes of a `context` [d] lie within the bounds of previews."""
        if self.compiled is None or self.compiled.previews is None:
            return True
        previews = self.compiled.preview(context[None], 0, reaches=True)
        assert previews.reaches is not None
        return bool((np.abs(previews.logits - logits) <= previews.reaches).all())


class WholePlan(Plan):
    """All classes by all components: front.onnx, then rest.onnx."""

    def __init__(self, front: Front, rest: RestPlan) -> None:
        self.front, self.rest = front, rest

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best of all classes; `scored` is V."""
        if class_filter.restricts:
            return self.rest.rank(self.compute_distribution(contexts), k, class_filter)
        mean, logits = self.front(contexts)
        return merge_parts(
            self.rank(logits, k, self.front.frequent), self.rank(self.rest.logits(mean), k, self.front.rare), k
        )

    def rank(self, logits: FloatArray, k: int, ids: IdArray) -> PlanResult:
        """The k best of `logits` [B, n], which are overwritten, of the ascending `ids` [n]; `scored` is n."""
        result = self.rest.rank(logits, k, UNRESTRICTED)
        result.ids = ids[result.ids] if k <= ids.size else np.where(result.ids < 0, NO_CLASS, ids[result.ids])
        return result

    def rank_frequent(self, logits: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best permitted frequent classes by `logits` [B, S], overwritten; normalised as without the lists."""
        ids = self.front.frequent
        if not class_filter.restricts:
            return self.rank(logits, k, ids)
        result = empty_result(len(logits), k)
        result.scored.fill(ids.size)
        for row, some in enumerate(logits):
            permitted = np.where(class_filter.mask(ids, row), some, np.float32(-np.inf))
            result.ids[row], result.logits[row] = take_best(permitted, ids, k)
            result.log_normalizer[row] = log_sum_exp(some)
        return result

    def compute_distribution(self, contexts: FloatArray) -> FloatArray:
        """Logits [B, V] of all classes by all components."""
        mean, frequent = self.front(contexts)
        logits = np.empty((len(contexts), self.front.classes), np.float32)
        logits[:, self.front.frequent], logits[:, self.front.rare] = frequent, self.rest.logits(mean)
        return logits

    def width(self, k: int) -> int:
        """0: every class is scored, whatever k."""
        del k
        return 0

    def max_rows(self) -> int:
        return self.rest.max_rows()


class MixturePlan(Plan):
    """Searches by front.onnx, and among rare classes as plan `grouped`; the exporter's `graphs.mixture` has the graphs.

    A logit is a mean over components, weighted by gates. All rare classes have the same gates, so that theirs are those
    of one layer over the mean of the components' vectors; that layer's graphs and arrays are what plan `grouped` reads.
    index.safetensors: its arrays, and `frequent` [S], the ids of the other classes. Settings: `MixtureSettings`.

    Loops preview the frequent classes by each component in int8, where the bundle has that, and score exactly all that
    bounds leave among the best. So the best frequent classes are those of all components, and their logits the same.
    Under lists all components score every frequent class.

    The normaliser takes exact logits or previews for the frequent classes and the search's estimate for the rare:
    `estimated`.
    """

    settings: MixtureSettings

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open the graphs of both plans."""
        self.settings, self.fallback, self.max_k = bundle.settings(MixtureSettings), fallback, bundle.manifest.max_k
        self.rare = GroupedPlan(bundle, device, threads)
        self.front = Front(bundle, device, threads)
        self.whole = WholePlan(self.front, RestPlan(bundle, device, threads))

    def prefers_dense(self, k: int) -> bool:
        return self.rare.prefers_dense(k)

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best; `scored` is the number of frequent classes scored exactly and of the search's candidates."""
        if class_filter.restricts:
            mean, logits = self.front(contexts)
            frequent = self.whole.rank_frequent(logits, k, class_filter)
        else:
            mean, frequent = self.search_frequent(contexts, k)
        return merge_parts(frequent, self.rare.topk(mean, k, class_filter), k)

    def search_frequent(self, contexts: FloatArray, k: int) -> tuple[FloatArray, PlanResult]:
        """Vectors [B, d] that score the rare classes of `contexts` [B, d], and the k best frequent ones.

        Previews leave as many exact as the search among the rare classes does, so that k of one width agree.
        """
        previews = self.front.preview(contexts, self.rare.count_exact(k))
        frequent = self.whole.rank(previews.logits, k, self.front.frequent)
        frequent.scored = previews.scored
        return previews.means, frequent

    def open_row_answers(self) -> RowAnswers | None:
        """By loops, for k for which they are searched."""
        front, search = self.front.compiled, self.rare.compiled
        if front is None or search is None:
            return None
        max_k = min(self.max_k, self.rare.find_largest_k(), MAX_GROUPED_K, self.rare.order.size)
        return front.open_row_answers(search, max_k, lambda k: self.rare.plan_search(k, restricts=False))

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        is_rare = self.front.is_rare[np.maximum(ids, 0)]
        mean, first = self.search_frequent(contexts, 1)
        frequent = cover_also(first, np.where(is_rare, NO_CLASS, ids), logits)
        rare = self.rare.compute_log_normalizer(mean, np.where(is_rare, ids, NO_CLASS), logits)
        both: FloatArray = np.logaddexp(frequent, rare)
        return both

    def compute_distribution(self, contexts: FloatArray) -> FloatArray:
        """Logits [B, V] of all classes by all components."""
        return self.whole.compute_distribution(contexts)

    def make_exact_plan(self) -> Plan:
        """All classes by all components."""
        return self.whole

    def with_settings(self, settings: PlanSettings) -> Self:
        """This plan over a search by other settings."""
        other = super().with_settings(settings)
        other.rare = self.rare.with_settings(settings)
        return other

    def width(self, k: int) -> int:
        return self.rare.width(k)

    def max_rows(self) -> int:
        return self.rare.max_rows()


def merge_parts(frequent: PlanResult, rare: PlanResult, k: int) -> PlanResult:
    """The k best of two results over classes that they do not share."""
    return PlanResult(
        *merge_best(frequent, rare, k),
        np.logaddexp(frequent.log_normalizer, rare.log_normalizer),
        frequent.scored + rare.scored,
    )


def merge_best(one: PlanResult, other: PlanResult, k: int) -> tuple[IdArray, FloatArray]:
    """The k best [B, k] of both: ids and logits; equal logits by lower id, -1 beside -inf."""
    if len(one.ids) == 1:  # of one row this is faster
        flat_ids, flat_logits = (
            np.concatenate([one.ids[0], other.ids[0]]),
            np.concatenate([one.logits[0], other.logits[0]]),
        )
        best = np.lexsort((flat_ids, -flat_logits))[:k]
        return flat_ids[None, best], flat_logits[None, best]
    ids = np.concatenate([one.ids, other.ids], axis=1)
    logits = np.concatenate([one.logits, other.logits], axis=1)
    order = np.lexsort((ids, -logits), axis=1)[:, :k]
    return np.take_along_axis(ids, order, axis=1), np.take_along_axis(logits, order, axis=1)
