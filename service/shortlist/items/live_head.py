"""A head whose answers hold the changes of its items that were made since it was exported."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np

from shortlist.core.bias import Bias
from shortlist.core.draws.sampling import Sampling
from shortlist.core.filters import ClassFilter
from shortlist.core.results import PROVED_NORMALIZERS, FloatArray, IdArray, PlanResult, TopK
from shortlist.head import Head
from shortlist.plans.common.base import Plan, map_chunks
from shortlist.plans.common.list_costs import MOST_ASKED
from shortlist.plans.common.list_ways import search_free_rows_apart
from shortlist.plans.common.normalizer import check_overflow, cover_classes, log_sum_exp, make_topk
from shortlist.plans.common.sampling import draw_from_distribution
from shortlist.plans.common.way_choice import count_asked

from .overlay import NOT_CHANGED, ItemOverlay, Snapshot, overlay_logits
from .search import LEAST_NORMALIZER, BaseLayer, choose_least_share, correct_normalizer, search_changed


class LiveHead(Head):
    """The same head with changed items. While none is changed its answers and their way are those of the head.

    items: what was changed.
    """

    items: ItemOverlay

    @classmethod
    def make(cls, head: Head, items: ItemOverlay) -> LiveHead:
        """The head with changes, which shares everything else with `head`."""
        live = cls.__new__(cls)
        live.__dict__.update(head.__dict__)
        live.items, live.names = items, items.names
        live.row_answers = live.exact_answers = None  # they know the bundle's classes alone
        return live

    @property
    def base(self) -> Head:
        """The head as it was exported."""
        head = Head.__new__(Head)
        head.__dict__.update({name: value for name, value in self.__dict__.items() if name != "items"})
        return head

    @property
    def classes(self) -> int:
        """V and the items added: ids are under it."""
        self.items.follow()
        return self.items.classes

    @property
    def is_changed(self) -> bool:
        """Whether some item was changed."""
        return self.items.read() is not None

    def with_settings(self, **changes: Any) -> Self:
        """As `Head.with_settings`; it has the same changes."""
        other = super().with_settings(**changes)
        other.row_answers = None
        assert isinstance(other, type(self))
        return other

    def computes_rows_alone(self, plan: Plan) -> bool:
        """Whether to gather rows saves nothing: what changed is scored row by row, as is all but the dense layer."""
        return self.threads == 1 and plan is not self.exact and self.is_changed

    def run(
        self, plan: Plan, contexts: FloatArray, k: int, class_filter: ClassFilter, bias: Bias | None = None
    ) -> PlanResult:
        """As `Head.run`; the search for the k best beside those with a bias comes here again."""
        changes = self.items.read()
        if changes is None or bias is not None or not len(contexts):
            return super().run(plan, contexts, k, class_filter, bias)
        asked = choose_asked(plan, k, changes)
        search, layer = partial(super().run, plan), self.open_base_layer(plan, changes)

        def search_alike(rows: FloatArray, k: int, lists: ClassFilter) -> PlanResult:
            return search_changed(search, rows, k, asked, lists, changes, layer)

        return search_free_rows_apart(search_alike, contexts, k, class_filter)

    def open_base_layer(self, plan: Plan, changes: Snapshot) -> BaseLayer:
        """What the bundle says of its own classes; `plan` has its distribution, or leaves it to the dense layer."""
        exact = self.exact

        def score(rows: FloatArray, ids: IdArray) -> FloatArray:
            return super(LiveHead, self).compute_logits(plan, rows, ids)

        def sum_rest(rows: FloatArray) -> FloatArray:
            assert exact is not None
            return np.concatenate(map_chunks(exact.max_rows(), rows, lambda some, _: sum_base(exact, some, changes)))

        is_estimate = plan is self.plan and self.manifest.normalizer not in PROVED_NORMALIZERS
        quality = self.manifest.quality
        least_share = choose_least_share(0.0 if quality is None else quality.logprob_error_p99)
        return BaseLayer(score, None if exact is None else sum_rest, is_estimate, least_share)

    def compute_logits(self, plan: Plan, contexts: FloatArray, classes: IdArray) -> FloatArray:
        """As `Head.compute_logits`; -inf for items that were removed."""
        changes = self.items.read()
        if changes is None:
            return super().compute_logits(plan, contexts, classes)
        own = np.where(classes < changes.base_classes, classes, 0)
        return overlay_logits(super().compute_logits(plan, contexts, own), contexts, classes, changes)

    def score_rows(self, plan: Plan, contexts: FloatArray, ids: IdArray, start: int) -> FloatArray:
        """As `Head.score_rows`; -inf for items that were removed, whose share the normaliser lacks."""
        changes = self.items.read()
        if changes is None:
            return super().score_rows(plan, contexts, ids, start)
        own = np.where(changes.find_rows(np.maximum(ids, 0)) == NOT_CHANGED, ids, -1)
        base = super().compute_logits(plan, contexts, np.maximum(own, 0))
        logits = overlay_logits(base, contexts, np.maximum(ids, 0), changes)
        check_overflow(logits.max(axis=1), start)
        total = self.normalize(plan, contexts, own, base, changes)
        normalizer = cover_classes(total, ids, logits)
        check_overflow(normalizer, start)
        return np.where(ids < 0, np.float32(-np.inf), logits - normalizer[:, None])

    def normalize(
        self, plan: Plan, contexts: FloatArray, own: IdArray, logits: FloatArray, changes: Snapshot
    ) -> FloatArray:
        """[B] log-normalisers of a call that scores the bundle's `own` classes [B, m], of these logits, exactly."""
        base = plan.compute_log_normalizer(contexts, own, logits)
        layer = self.open_base_layer(plan, changes)
        are_estimates = np.full(len(contexts), layer.is_estimate)
        added = changes.table.sum_logits(changes.score(contexts))
        return correct_normalizer(base, contexts, added, are_estimates, changes, layer)

    def draw(self, rows: FloatArray, sampling: Sampling, class_filter: ClassFilter, bias: Bias | None) -> TopK:
        """As `Head.draw`; draws from all classes are of the dense layer's logits and those of changed items."""
        changes = self.items.read()
        if changes is None or sampling.top_k is not None:
            return super().draw(rows, sampling, class_filter, bias)
        plan, normalizer = self.choose_plan(1, 1, exact=True, proof=False)

        def draw_chunk(contexts: FloatArray, start: int) -> PlanResult:
            stop = start + len(contexts)
            weights = None if bias is None else bias[start:stop]
            logits = find_distribution(plan, contexts, changes)
            lists = class_filter.slice_rows(start, stop)
            draws = draw_from_distribution(logits, sampling.slice_rows(start, stop), lists, weights)
            if not changes.has_classes:
                draws.log_normalizer.fill(LEAST_NORMALIZER)
            return draws

        return make_topk(PlanResult.concat(map_chunks(plan.max_rows(), rows, draw_chunk)), normalizer)


def choose_asked(plan: Plan, k: int, changes: Snapshot) -> int | None:
    """Of how many classes of the bundle a search almost surely leaves k that were not changed; None for too many."""
    left = changes.base_classes - changes.hidden.size
    asked = count_asked(k, left / changes.base_classes) if left else changes.base_classes + 1
    too_dear = plan.prefers_dense(asked) and not plan.prefers_dense(k)
    return None if too_dear or asked > min(MOST_ASKED, changes.base_classes) else asked


def find_distribution(plan: Plan, contexts: FloatArray, changes: Snapshot) -> FloatArray:
    """Logits [b, classes] of an exact plan's classes and of changed items, -inf where there is none."""
    logits = np.full((len(contexts), changes.classes), -np.inf, np.float32)
    logits[:, : changes.base_classes] = find_base_distribution(plan, contexts, changes)
    items, rows = changes.sorted_items
    logits[:, items] = changes.score(contexts)[:, rows]
    return logits


def find_base_distribution(plan: Plan, contexts: FloatArray, changes: Snapshot) -> FloatArray:
    """Logits [b, V] of an exact plan's classes, -inf for those that were changed."""
    logits = plan.compute_distribution(contexts)
    assert logits is not None, "exact plans have a distribution"
    logits[:, changes.hidden[0]] = -np.inf
    return logits


def sum_base(plan: Plan, contexts: FloatArray, changes: Snapshot) -> FloatArray:
    """[b] the log of the sum of exp(logit) over an exact plan's classes that were not changed."""
    logits = find_base_distribution(plan, contexts, changes)
    return np.array([log_sum_exp(row) for row in logits], np.float32)
