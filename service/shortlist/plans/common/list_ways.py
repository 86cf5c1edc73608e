"""Rows with lists over many classes, each answered in the way that costs least.

The ways: the plan's own search with lists, which short lists of any kind take; a search without lists for more classes,
of which those that the lists exclude are dropped; exact scores of all classes of an allow list; an exact answer.
`way_choice` says which of them a row takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.list_costs import ListCosts
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import NO_CLASS, BoolArray, FloatArray, IdArray, IntArray, PlanResult, empty_result
from shortlist.core.row_lists import NO_LIST, Lists, RowLists, are_empty, sort_ids
from shortlist.kernels.lists import mark_long_list

from .base import Plan, take_best
from .exact_rows import ExactRows
from .list_costs import guess_costs
from .normalizer import log_sum_exp
from .way_choice import EXACT, LISTED, OWN, WayChoice

MIN_CLASSES = 1 << 15  # with fewer, the plan's own search answers
MAX_RECALLED = 4_096  # choices that are remembered

Search = Callable[[FloatArray, int, ClassFilter], PlanResult]


class ListWays:
    """Answers rows with lists. Threads may share it.

    rows: exact logits of given classes. costs: of the ways.
    """

    def __init__(self, plan: Plan, rows: ExactRows, classes: int, costs: ListCosts) -> None:
        self.plan, self.exact_rows, self.classes, self.costs = plan, rows, classes, costs
        self.choice = WayChoice(plan, classes, costs)
        self.recall_way = lru_cache(MAX_RECALLED)(self.choice.choose_way)

    @classmethod
    def open(cls, bundle: Bundle, plan: Plan, rows: ExactRows | None) -> Self | None:
        """Open the ways; None for few classes, and without exact rows."""
        manifest = bundle.manifest
        if rows is None or manifest.classes < MIN_CLASSES:
            return None
        return cls(plan, rows, manifest.classes, manifest.list_costs or guess_costs(manifest.dim))

    def with_plan(self, plan: Plan) -> Self:
        """The ways of another plan over the same rows."""
        return type(self)(plan, self.exact_rows, self.classes, self.costs)

    def choose_search(self, plan: Plan, class_filter: ClassFilter) -> Search:
        """What answers rows with these lists: searches inside a search, and by other plans, take no other way."""
        return self.topk if plan is self.plan and class_filter.restricts and class_filter.is_plain else plan.topk

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best permitted classes of `contexts` [B, d], as the plan's own `topk` gives them."""
        class_filter = mark_shared_list(self.plan, self.classes, k, class_filter)
        ways = self.choose_ways(len(contexts), k, class_filter)
        if len(contexts) and (ways == ways[0]).all():
            return self.answer(int(ways[0]), contexts, k, class_filter)
        result = empty_result(len(contexts), k)
        for way in np.unique(ways):
            some = (ways == way).nonzero()[0]
            result.put(some, self.answer(int(way), contexts[some], k, class_filter.take(some)))
        return result

    def answer(self, way: int, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """As `topk`, of rows that all take one `way`: `OWN`, `LISTED`, `EXACT`, or how many classes to ask for."""
        if way == OWN:
            return self.plan.topk(contexts, k, class_filter)
        if way == LISTED:
            return self.score_lists(contexts, k, class_filter)
        if way == EXACT and (exact := self.plan.search_exactly(contexts, k, class_filter)) is not None:
            return exact
        return self.ask_for_more(way, contexts, k, class_filter)

    # the ways

    def ask_for_more(self, depth: int, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best of the `depth` best classes of all that the lists permit; rows of which too few are left go on."""
        best_of_all = self.plan.topk(contexts, depth, UNRESTRICTED)
        ids, logits = np.empty((len(contexts), k), np.int64), np.empty((len(contexts), k), np.float32)
        short = []
        for row, some in enumerate(best_of_all.ids):
            best = (class_filter.mask(some, row) & (some != NO_CLASS)).nonzero()[0][:k]
            if best.size < k:
                short.append(row)
            else:
                ids[row], logits[row] = some[best], best_of_all.logits[row, best]
        result = PlanResult(ids, logits, best_of_all.log_normalizer, best_of_all.scored, risk=best_of_all.risk)
        for row in short:
            some, lists = np.array([row]), class_filter.take(np.array([row]))
            is_listed = lists.allow_list(0) is not None
            way = self.choice.choose_sure_way(k, self.count_permitted(lists, 0), is_listed)
            result.put(some, self.answer(way, contexts[some], k, lists))
        return result

    def score_lists(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best of each row's allow list, all of which are scored exactly; nothing of it can be missed."""
        own = self.plan.score_lists(contexts, k, class_filter)
        if own is not None:
            return own
        result = empty_result(len(contexts), k)
        for row, ids in enumerate(self.list_permitted(class_filter, len(contexts))):
            logits = self.exact_rows.score_row(contexts[row], ids)
            result.ids[row], result.logits[row] = take_best(logits, ids, k)
            result.scored[row], result.log_normalizer[row] = ids.size, log_sum_exp(logits)
        estimates = self.plan.compute_log_normalizer(contexts, result.ids, result.logits)
        result.log_normalizer = np.maximum(estimates, result.log_normalizer)
        result.risk = np.zeros(len(contexts), np.float32)
        return result

    def list_permitted(self, class_filter: ClassFilter, rows: int) -> Iterator[IdArray]:
        """The permitted classes [m] of each row, ascending; every row has an allow list."""
        for row in range(rows):
            allowed = class_filter.allow_list(row)
            assert allowed is not None
            plain = np.asarray(allowed, np.int64)
            ids = plain if class_filter.permitted is not None else sort_ids(plain)
            for banned in class_filter.list_bans(row):
                ids = drop_ids(ids, banned)
            yield ids

    # the choice

    def choose_ways(self, rows: int, k: int, class_filter: ClassFilter) -> IdArray:
        """The way [B] of each row."""
        shared = all(lists is None or len(lists) == 1 for lists in (class_filter.allow, class_filter.ban))
        if self.plan.searches_marks(k, class_filter.count_marked()):
            return np.full(rows, OWN)
        ways = [
            self.recall_way(k, self.count_permitted(class_filter, row), class_filter.allow_list(row) is not None)
            for row in range(1 if shared else rows)
        ]
        return np.array(ways * rows if shared else ways, np.int64)

    def count_permitted(self, class_filter: ClassFilter, row: int) -> int:
        """At most how many classes the lists leave to a row."""
        allowed = class_filter.allow_list(row)
        bans = sum(banned.size for banned in class_filter.list_bans(row))
        return self.classes - bans if allowed is None else int(allowed.size)


def mark_shared_list(plan: Plan, classes: int, k: int, class_filter: ClassFilter) -> ClassFilter:
    """The filter with marks beside a long allow list that all rows share, where `plan` searches those."""
    shared = find_shared_list(class_filter.allow)
    if class_filter.permitted is not None or shared is None or not plan.searches_marks(k, shared.size):
        return class_filter
    marks = mark_long_list(shared, classes)
    if marks is None:
        return class_filter
    ids = marks.nonzero()[0]  # each once: how many there are says how to search
    return replace(class_filter, allow=ids[None], permitted=marks if plan.searches_marks(k, ids.size) else None)


def search_long_lists_apart(
    search: Search, plan: Plan, contexts: FloatArray, k: int, class_filter: ClassFilter
) -> PlanResult:
    """`search` of each row by itself whose long allow list is its own and that `plan` searches by marks, and of others.

    So no answer depends on whether the rows beside it have the same list.
    """
    long = find_long_lists(plan, k, class_filter, len(contexts))
    if not long:
        return search(contexts, k, class_filter)
    result, others = empty_result(len(contexts), k), np.setdiff1d(np.arange(len(contexts)), list(long))
    for row, ids in long.items():
        lists = replace(class_filter.slice_rows(row, row + 1), allow=ids[None])
        result.put([row], search(contexts[row : row + 1], k, lists))
    if others.size:
        result.put(others, search(contexts[others], k, class_filter.take(others)))
    return result


def find_long_lists(plan: Plan, k: int, class_filter: ClassFilter, rows: int) -> dict[int, IdArray]:
    """The allow lists [m] of those rows, by row; none where all rows have one list."""
    allow = class_filter.allow
    if allow is None or class_filter.permitted is not None or not class_filter.is_plain:
        return {}
    if find_shared_list(allow) is not None:
        return {}
    if (allow.count_longest() if isinstance(allow, RowLists) else allow.shape[1]) <= plan.most_listed:
        return {}
    lists = ((row, class_filter.allow_list(row)) for row in range(rows))
    return {
        row: np.asarray(ids, np.int64) for row, ids in lists if ids is not None and plan.searches_marks(k, ids.size)
    }


def find_shared_list(lists: Lists | None) -> IdArray | IntArray | None:
    """The ids [m] of the one list of all rows, with its padding; None of other lists."""
    if isinstance(lists, RowLists):
        return lists.get_row(0) if len(lists) and lists.is_shared() else None
    return None if lists is None or len(lists) != 1 else lists[0]


def search_free_rows_apart(search: Search, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
    """`search` of the rows that nothing restricts, of those that lists alone restrict, and of the others, each apart.

    So no answer depends on what restricts the rows beside it: plans look further for rows with lists, and other ways
    take rows of which no class is hidden or forced.
    """
    if not class_filter.restricts:
        return search(contexts, k, class_filter)
    free = find_free_rows(class_filter, len(contexts))
    if class_filter.is_plain and not free.any():  # as nearly always: no need to tell rows apart
        return search(contexts, k, class_filter)
    parts = [(rows.nonzero()[0], lists) for rows, lists in list_parts(class_filter, free) if rows.any()]
    if len(parts) <= 1:
        return search(contexts, k, parts[0][1] if parts else class_filter)
    result = empty_result(len(contexts), k)
    for some, lists in parts:
        result.put(some, search(contexts[some], k, lists.take(some)))
    return result


def list_parts(class_filter: ClassFilter, free: BoolArray) -> Iterator[tuple[BoolArray, ClassFilter]]:
    """Marks [rows] of the rows that are searched together, and what restricts those. free: those that nothing does."""
    yield free, UNRESTRICTED
    listed = find_free_rows(replace(class_filter, allow=None, ban=None), len(free))
    yield ~free & listed, replace(class_filter, hidden=None, forced=None)
    yield ~free & ~listed, class_filter


def find_free_rows(class_filter: ClassFilter, rows: int) -> BoolArray:
    """[rows]: which of them may get any class."""
    free: BoolArray = np.ones(rows, bool) if class_filter.forced is None else class_filter.forced < 0
    allow = class_filter.allow
    if allow is not None:
        free = free & (allow.numbers == NO_LIST if isinstance(allow, RowLists) else False)
    for bans in (class_filter.ban, class_filter.hidden):
        if bans is not None:
            free = free & are_empty(bans)
    return free


def drop_ids(ids: IdArray, banned: npt.NDArray[np.integer[Any]]) -> IdArray:
    """`ids` [m], ascending, without those that are `banned` [n]."""
    if not ids.size or not banned.size:
        return ids
    places = np.searchsorted(ids, banned)
    is_there = ids[np.minimum(places, ids.size - 1)] == banned
    return np.delete(ids, places[is_there])
