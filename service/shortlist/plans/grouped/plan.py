"""Plan `grouped`: previews of the classes in the best groups, then two rescorings; compiled where they can be."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Self

import numpy as np

from shortlist.bundle.reader import INDEX_FILE, Bundle
from shortlist.bundle.settings import MAX_EFFORT_K, GroupedSettings, PlanSettings
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray, PlanResult
from shortlist.kernels.grouped.effort import (
    GROUPED_CANDIDATES_PER_K,
    GROUPED_EXACT_PER_K,
    Search,
)
from shortlist.kernels.grouped.planning import Question, count_tail_candidates, is_wide, plan_search, prepare_search
from shortlist.kernels.grouped.runner import CompiledSearch
from shortlist.kernels.lists import MOST_LISTED
from shortlist.kernels.row_answers import RowAnswers
from shortlist.plans.common.base import (
    DENSE_DIVISOR,
    MAX_CALL_ROWS,
    Plan,
    RunPlan,
    chunk_rows,
    find_short_rows,
    run_by_chunks,
)
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.list_ways import mark_shared_list
from shortlist.plans.common.normalizer import cover_also
from shortlist.plans.common.wide_search import WideSearch

from .graphs import GroupedGraphs, Outputs, Sessions

MAX_GROUPED_K = 512  # beyond it, sorting is numpy's
MOST_MARKED_DEPTH = 256  # about so many of the best classes hold k marked ones: more would need a closer search
MAX_LISTED_BYTES = 2 << 20  # of int8 rows of an allow list that is short: a search would read as much
SURE_MISS = 0.999  # a risk that stands for rows that are left to exact answers


class GroupedPlan(Plan):
    """Searches by fused.onnx and rescore.onnx; the exporter's `graphs.grouped` describes them.

    index.safetensors: `order` [m], the ids that positions stand for, `starts` [G + 1] and `block_starts` [B + 1],
    where groups and blocks begin in it, and what `kernels.grouped` reads. Settings: `GroupedSettings`; loops look at
    up to a 32nd more classes than these open and preview. With a promise, that is the first look at a row; another
    follows where the estimated odds that some of its best classes were missed are over a bar (`find_bars`).

    The normaliser takes exact and int8 logits for the candidates and a linear guess for the rest: `estimated`.
    """

    settings: GroupedSettings

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Lay out what loops read, or open the graphs; previews are small, so their weights are prepacked."""
        self.settings, self.fallback = bundle.settings(GroupedSettings), fallback
        self.classes, self.max_k = bundle.manifest.classes, bundle.manifest.max_k
        self.searches: dict[Question, Search] = {}
        arrays = bundle.tensors(INDEX_FILE)
        self.order: IdArray = arrays["order"]
        self.graphs = GroupedGraphs(Sessions(bundle, device, threads), arrays, self.settings, self.classes)
        self.wide = WideSearch(ExactRows(bundle, device, threads), self.order)
        self.compiled = CompiledSearch.open(bundle, arrays, threads) if device == "cpu" else None
        if self.compiled is None:
            self.graphs.open()
        else:
            self.most_listed = max(MOST_LISTED, MAX_LISTED_BYTES // self.compiled.tables.codes.shape[1])

    def prefers_dense(self, k: int) -> bool:
        return k > self.find_largest_k()

    def find_largest_k(self) -> int:
        """The largest k for which a search is faster than dense: by loops also where it scores all of a small layer."""
        most = max(self.settings.candidates, self.classes // DENSE_DIVISOR) // GROUPED_CANDIDATES_PER_K
        return most if self.compiled is None else max(most, min(self.order.size // 2, MAX_EFFORT_K))

    def open_row_answers(self) -> RowAnswers | None:
        """By loops, for k for which they are searched."""
        if self.compiled is None:
            return None
        max_k = min(self.max_k, self.find_largest_k(), MAX_GROUPED_K, self.order.size)
        return self.compiled.open_row_answers(max_k, self.max_rows(), self)

    @property
    def tail_candidates(self) -> int:
        """How many of the best classes the tail was fitted beside."""
        return count_tail_candidates(self.settings)

    def count_exact(self, k: int) -> int:
        """How many candidates are scored exactly."""
        return max(self.settings.full_view, ceil(GROUPED_EXACT_PER_K * k))

    def is_wide(self, k: int) -> bool:
        """Whether k asks for more candidates than the normaliser's guess of the rest was fitted for, or there are."""
        return is_wide(self.settings, k, self.order.size)

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best; `scored` is the number of candidates, under V unless all of them are scored exactly."""
        if self.compiled is not None and k <= MAX_GROUPED_K:
            if class_filter.is_plain:
                class_filter = mark_shared_list(self, self.classes, k, class_filter)
            marked = class_filter.count_marked()
            if not self.searches_marks(k, marked):
                class_filter, marked = class_filter.without_marks(), 0
            result = self.compiled(contexts, self.plan_search(k, class_filter.restricts, marked), class_filter)
            self.answer_left_rows(result, contexts, k, class_filter)
            return result
        if self.compiled is not None and self.prover is not None and not self.prover.prefers_dense(k):
            return self.prove_many(contexts, k, class_filter)
        search = self.search_widely if class_filter.restricts or self.is_wide(k) else self.search_by_graphs
        return self.run_in_cache(lambda rows, lists: search(rows, k, lists), contexts, class_filter)

    def prove_many(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best by proof, for k beyond what loops search: faster than graphs, which preview all classes."""
        assert self.prover is not None
        prove = self.prover.topk
        step = self.prover.max_rows()
        result = run_by_chunks(lambda rows, lists: prove(rows, k, lists), contexts, class_filter, step)
        result.risk = np.zeros(len(contexts), np.float32)
        return result

    def searches_marks(self, k: int, permitted: int) -> bool:
        is_deep = k * self.classes > MOST_MARKED_DEPTH * permitted
        return bool(self.compiled and self.settings.promise) and permitted > self.most_listed and not is_deep

    def estimates_misses(self, k: int) -> bool:
        return bool(self.compiled and self.settings.promise) and k <= MAX_EFFORT_K

    def score_lists(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult | None:
        if self.compiled is None or k > MAX_GROUPED_K:
            return None
        search = self.plan_search(k, restricts=True)._replace(most_listed=self.classes)
        result = self.compiled(contexts, search, class_filter.without_marks())
        self.answer_left_rows(result, contexts, k, class_filter)  # lists of nearly all classes are searched
        return result

    def answer_left_rows(self, result: PlanResult, contexts: FloatArray, k: int, class_filter: ClassFilter) -> None:
        """Answer rows exactly that a search leaves. Where nothing can, it took all looks at them, as risky as they are.

        Marks of few of a row's best classes are then read as the list that they are. Narrower searches than the export
        estimated state no risk.
        """
        assert self.compiled is not None
        risks = [] if result.risk is None else result.risk.tolist()  # no rows have none
        for row in [row for row, risk in enumerate(risks) if risk > SURE_MISS]:  # in a third of numpy's time for a row
            some, lists = contexts[row : row + 1], class_filter.slice_rows(row, row + 1)
            answer = self.search_exactly(some, k, lists)
            if answer is None and lists.permitted is not None:
                answer = self.compiled(some, self.plan_search(k, restricts=True), lists.without_marks())
            if answer is not None:
                result.put([row], answer)
        if self.settings.is_narrower:
            result.risk = None

    def plan_search(self, k: int, restricts: bool, marked: int = 0) -> Search:
        """How loops look for k classes, kept but where there are marks: of these there are too many numbers.

        restricts: whether there are lists. marked: how many classes marks permit; 0 without marks.
        """
        question = Question(k, restricts, self.find_exact(k) is not None, marked)
        search = self.searches.get(question)
        if search is None:
            search = plan_search(self.settings, self.order.size, self.most_listed, question)
            if not marked:
                self.searches[question] = search
        return search

    def prepare_search(self, k: int) -> Callable[..., Search]:
        """A search for k classes by looks that are given."""
        return prepare_search(self.settings, self.most_listed, k)

    def plan_normalizer_search(self) -> Search:
        """How loops look for all classes that are scored exactly where any few are asked for."""
        search, full_view = self.plan_search(1, restricts=False), self.settings.full_view
        return search._replace(k=min(full_view, self.order.size))

    def run_in_cache(self, call: RunPlan, contexts: FloatArray, class_filter: ClassFilter) -> PlanResult:
        """`call` with so few rows at a time that their previews stay in the cache."""
        return run_by_chunks(call, contexts, class_filter, chunk_rows(self.order.size))

    def search_by_graphs(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best of rows [B, d] without lists, as the loops search them."""
        result = self.graphs.rescore(contexts, self.graphs.preview(contexts), k, self.count_exact(k))
        short = find_short_rows(result)
        if short:
            result.put(short, self.search_widely(contexts[short], k, class_filter))
        return result

    def search_widely(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best among many of all groups' previews."""
        outputs = self.graphs.preview(contexts)
        first = self.score_exact_classes(contexts, outputs)
        count = self.graphs.count_wide(k, class_filter.restricts)
        return self.wide.search(contexts, outputs[-1], first, k, count, class_filter)

    def score_exact_classes(self, contexts: FloatArray, outputs: Outputs | None = None) -> PlanResult:
        """All classes that a search of `contexts` [B, d] without lists scores exactly. outputs: of the graphs."""
        if self.compiled is not None:
            return self.compiled(contexts, self.plan_normalizer_search(), UNRESTRICTED)
        outputs, full_view = self.graphs.preview(contexts) if outputs is None else outputs, self.settings.full_view
        return self.graphs.rescore(contexts, outputs, min(full_view, self.order.size), full_view)

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        if self.compiled is not None:
            first = self.score_exact_classes(contexts)
            self.answer_left_rows(first, contexts, first.ids.shape[1], UNRESTRICTED)
        else:
            first = self.run_in_cache(lambda rows, _: self.score_exact_classes(rows), contexts, UNRESTRICTED)
        return cover_also(first, ids, logits)

    def with_settings(self, settings: PlanSettings) -> Self:
        other = super().with_settings(settings)
        other.searches, other.graphs = {}, self.graphs.with_settings(other.settings)
        return other

    def width(self, k: int) -> int:
        """The number of exact scores; -k where k needs more candidates than the settings give every row.

        So, too, where loops keep a promise: how far they look, and the risk, are those of k classes.
        """
        keeps_promise = self.compiled is not None and self.settings.promise is not None
        return -k if keeps_promise or self.is_wide(k) else self.count_exact(k)

    def max_rows(self) -> int:
        """Many: loops keep nothing of a row, and share many rows better among threads."""
        return MAX_CALL_ROWS
