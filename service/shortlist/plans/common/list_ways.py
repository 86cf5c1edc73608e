"""Rows with lists over many classes, each answered in the way that costs least.

The ways: the plan's own search with lists; a search without lists for more classes, of which those that the lists
exclude are dropped; exact scores of all classes of an allow list. Which of them a row takes depends on its k and on how
many classes its lists leave, and on costs that are timed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from math import ceil, sqrt
from threading import Lock
from typing import Self

import numpy as np

from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import NO_CLASS, FloatArray, IdArray, PlanResult, empty_result

from .base import Plan, take_best
from .exact_rows import ExactRows
from .list_costs import MOST_ASKED, ListCosts, measure_costs

MIN_CLASSES = 1 << 16  # with fewer, the plan's own search answers
MIN_LISTED = 2_048  # shorter allow lists are the plan's own affair
MAX_BANS = 1 << 14  # up to so many, a ban list costs what a short one does
TIMED_CONTEXTS = 4  # of the calibration's
SPREADS = 3.0  # so many standard deviations more are asked for than are needed where lists are no matter of scores
ASKED_FACTOR = 16  # a row of which too few classes are left asks for so many times more
OWN, LISTED, EXACT = 0, -1, -2  # ways; all others are the number of classes that are asked for


Search = Callable[[FloatArray, int, ClassFilter], PlanResult]


class ListWays:
    """Answers rows with lists. Threads may share it.

    rows: exact logits of given classes. contexts: [n, d], on which the ways are timed when lists first come.
    """

    def __init__(self, plan: Plan, rows: ExactRows, classes: int, contexts: FloatArray) -> None:
        self.plan, self.rows, self.classes, self.contexts = plan, rows, classes, contexts
        self.measuring = Lock()

    @cached_property
    def costs(self) -> ListCosts:
        """What the ways cost on this machine."""
        with self.measuring:
            return self.__dict__.get("costs") or measure_costs(self.plan, self.rows, self.classes, self.contexts)

    @classmethod
    def open(cls, bundle: Bundle, plan: Plan, rows: ExactRows | None) -> Self | None:
        """Open the ways; None for few classes, without exact rows, and for a bundle that is not measured yet."""
        manifest = bundle.manifest
        if rows is None or manifest.classes < MIN_CLASSES or CALIBRATION_FILE not in manifest.files:
            return None
        contexts = bundle.tensors(CALIBRATION_FILE)["contexts"][:TIMED_CONTEXTS].copy()
        return cls(plan, rows, manifest.classes, contexts)

    def with_plan(self, plan: Plan) -> Self:
        """The ways of another plan over the same rows, timed anew."""
        return type(self)(plan, self.rows, self.classes, self.contexts)

    def choose_search(self, plan: Plan, class_filter: ClassFilter) -> Search:
        """What answers rows with these lists: searches inside a search, and by other plans, take no other way."""
        is_plain = class_filter.hidden is None and class_filter.forced is None
        return self.topk if plan is self.plan and class_filter.restricts and is_plain else plan.topk

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best permitted classes of `contexts` [B, d], as the plan's own `topk` gives them."""
        ways = self.choose_ways(len(contexts), k, class_filter)
        if len(contexts) and (ways == ways[0]).all():
            return self.answer(int(ways[0]), contexts, k, class_filter)
        result = empty_result(len(contexts), k)
        for way in np.unique(ways):
            some = (ways == way).nonzero()[0]
            put_rows(result, some, self.answer(int(way), contexts[some], k, class_filter.take(some)))
        return result

    def answer(self, way: int, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The same, of rows that all take one way."""
        if way == OWN:
            return self.plan.topk(contexts, k, class_filter)
        if way == LISTED:
            return self.score_lists(contexts, k, class_filter)
        if way == EXACT and (exact := self.find_exact(k)) is not None:
            result = exact.topk(contexts, k, class_filter)
            result.risk = np.zeros(len(contexts), np.float32)
            return result
        return self.ask_for_more(way, contexts, k, class_filter)

    def find_exact(self, k: int) -> Plan | None:
        """What answers exactly for k, where lists exclude so many of the best classes that a search misses others."""
        prover = self.plan.prover
        return self.plan.fallback if prover is None or prover.prefers_dense(k) else prover

    # the ways

    def ask_for_more(self, asked: int, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best of so many `asked` classes that the lists permit; rows of which too few are left go on."""
        found = self.plan.topk(contexts, asked, UNRESTRICTED)
        result, short = empty_result(len(contexts), k), []
        put_rows(result, np.arange(len(contexts)), found.slice(0, len(contexts), k))
        for row, ids in enumerate(found.ids):
            best = (class_filter.mask(ids, row) & (ids != NO_CLASS)).nonzero()[0][:k]
            if best.size < k:
                short.append(row)
            else:
                result.ids[row], result.logits[row] = ids[best], found.logits[row, best]
        if short:
            rows = np.array(short)
            lists = class_filter.take(rows)
            way = self.choose_way(k, self.count_permitted(lists, 0), lists, least=ASKED_FACTOR * asked)
            way = EXACT if way == OWN and self.find_exact(k) is not None else way
            put_rows(result, rows, self.answer(way, contexts[rows], k, lists))
        return result

    def score_lists(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best of each row's allow list, all of which are scored exactly; nothing of it can be missed."""
        result = empty_result(len(contexts), k)
        for row, ids in enumerate(self.list_permitted(class_filter, len(contexts))):
            result.ids[row], result.logits[row] = take_best(self.rows.score_row(contexts[row], ids), ids, k)
            result.scored[row] = ids.size
        result.log_normalizer = self.plan.compute_log_normalizer(contexts, result.ids, result.logits)
        result.risk = np.zeros(len(contexts), np.float32)
        return result

    def list_permitted(self, class_filter: ClassFilter, rows: int) -> Iterator[IdArray]:
        """The permitted classes [m] of each row, ascending; every row has an allow list."""
        for row in range(rows):
            ids = np.asarray(class_filter.allow_list(row), np.int64)
            ids = ids if class_filter.permitted is not None else np.unique(ids)
            bans = class_filter.list_bans(row)
            yield ids[~np.isin(ids, np.concatenate(bans))] if bans else ids

    # the choice

    def choose_ways(self, rows: int, k: int, class_filter: ClassFilter) -> IdArray:
        """The way [B] of each row."""
        shared = all(lists is None or len(lists) == 1 for lists in (class_filter.allow, class_filter.ban))
        ways = [
            self.choose_way(k, self.count_permitted(class_filter, row), class_filter)
            for row in range(1 if shared else rows)
        ]
        return np.array(ways * rows if shared else ways, np.int64)

    def count_permitted(self, class_filter: ClassFilter, row: int) -> int:
        """At most how many classes the lists leave to a row."""
        allowed = class_filter.allow_list(row)
        bans = sum(banned.size for banned in class_filter.list_bans(row))
        return self.classes - bans if allowed is None else int(allowed.size)

    def choose_way(self, k: int, permitted: int, class_filter: ClassFilter, least: int = 0) -> int:
        """The way that costs least to find k of so many `permitted` classes.

        least: as many classes are asked for at least, for rows that asked for fewer in vain.
        """
        is_listed = class_filter.allow is not None
        if permitted < max(k, MIN_LISTED):
            return OWN
        asked = max(count_asked(k, permitted / self.classes), least)
        seconds = {OWN: self.estimate_own(is_listed, permitted)}
        if is_listed:
            seconds[LISTED] = self.costs.estimate_listed(permitted)
        if asked <= min(MOST_ASKED, self.classes) and not self.plan.prefers_dense(asked):
            seconds[asked] = self.costs.estimate_asked(asked)
        return min(seconds, key=lambda way: seconds[way])

    def estimate_own(self, is_listed: bool, permitted: int) -> float:
        """Seconds of the plan's own search, by whether there is an allow list or a ban list."""
        is_short = not is_listed and self.classes - permitted <= MAX_BANS
        return self.costs.banned if is_short else max(self.costs.allowed, self.costs.banned)


def count_asked(k: int, share: float) -> int:
    """How many of the best classes hold k permitted ones, almost surely, where a `share` of all are permitted."""
    spread = SPREADS * sqrt(k * max(0.0, 1 - share))
    return ceil((k + spread + 2 * (share < 1)) / share)


def put_rows(result: PlanResult, rows: IdArray, other: PlanResult) -> None:
    """Replace `rows` [b] of `result` by those of `other` [b, k], and their risk, NaN where nobody estimates one."""
    result.put(rows, other)
    if result.risk is None:
        result.risk = np.full(len(result.ids), np.nan, np.float32)
    result.risk[rows] = np.nan if other.risk is None else other.risk
