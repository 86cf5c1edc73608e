"""Whole answers of few rows of plan `grouped`, with short lists that all rows share or without lists."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shortlist.bundle.settings import MAX_EFFORT_K, GroupedSettings
from shortlist.core.filters import ClassFilter, IdLists, Members, restrict_to_members
from shortlist.core.results import FloatArray, IdArray, complete_risk
from shortlist.kernels.lists import MAX_BANS, make_struct, mark_long_list, take_list
from shortlist.kernels.native.arguments import RequestStruct
from shortlist.kernels.native.library import Function
from shortlist.kernels.row_answers import Answer, ManyRowAnswers, RowAnswers, answer_rows, read_risk
from shortlist.runtime.parallel import ThreadedRows

from .effort import Search, make_search

MAX_MARKED = 256  # searches of sets that are kept
LEFT_ROW = -1  # classes scored of a row that the loops leave to exact answers


class SearchPlan(Protocol):
    """A plan that says how loops look for classes, and answers rows that they leave."""

    settings: GroupedSettings

    @property
    def exact_answers(self) -> RowAnswers | None:
        """What answers single rows exactly in less time than `answer_exactly`; None where nothing does."""

    def plan_search(self, k: int, restricts: bool, marked: int = 0) -> Search:
        """How they look for k classes. restricts: where there are lists. marked: how many classes marks permit."""

    def searches_marks(self, k: int, permitted: int) -> bool:
        """Whether marks that permit so many classes are searched, rather than lists."""

    def answer_exactly(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> Answer | None:
        """Exact answers to contexts [B, d] with these lists; None where there is nothing that gives them."""


class GroupAnswers(ManyRowAnswers):
    """Answers few rows by one native call, which says how likely a miss is."""

    states_risk = True

    def __init__(
        self,
        function: Function,
        head: Any,
        dim: int,
        plan: SearchPlan,
        max_k: int,
        max_rows: int,
        threaded_rows: ThreadedRows,
        classes: int,
    ) -> None:
        """plan: says how loops look. classes: V. The others are those of the base class."""

        def make_plain_search(k: int) -> Any:
            return make_search(plan.plan_search(k, False))

        def make_marked_request(k: int, marked: int) -> RequestStruct:
            return RequestStruct.make(head, make_search(plan.plan_search(k, True, marked)), k)

        super().__init__(function, head, dim, make_plain_search, max_k, max_rows, threaded_rows)
        self.plan, self.classes, self.promise = plan, classes, plan.settings.stated_promise
        self.listed: dict[int, tuple[RequestStruct, int]] = {}
        self.find_marked_request = lru_cache(MAX_MARKED)(make_marked_request)

    def answer_listed(self, contexts: npt.ArrayLike, k: int, allow: IdLists, ban: IdLists) -> Answer | None:
        """The answers of rows that share short lists, arrays of ids or tables of one list; None for any others.

        The loops check the ids: a list with one that no class has is left to others, which say so.
        """
        if self.find_request(k) is None:
            return None
        request, most_listed = self.find_listed_request(k)
        allowed, banned = take_list(allow, most_listed, self.classes), take_list(ban, MAX_BANS, self.classes)
        if (banned is None) != (ban is None):
            return None
        if (allowed is None) != (allow is None):
            return self.answer_long_list(contexts, k, allow, banned)
        answers = self.plan.exact_answers if self.is_left(allowed, banned) else None
        if answers is not None and (answer := answers.answer_listed(contexts, k, allowed, banned)) is not None:
            return answer
        lists = make_struct(allowed, banned)  # of several rows loops leave one after the other
        return self.ask(request.with_lists(lists), contexts, lambda: ClassFilter(allowed, banned))

    def is_left(self, allowed: IdArray | None, banned: IdArray | None) -> bool:
        """Whether the loops leave a row with these lists to exact answers before any look."""
        most = self.plan.settings.most_bans
        if most is None or self.plan.settings.promise is None:
            return False
        bans = 0 if banned is None else np.count_nonzero(banned >= 0)
        return bool(bans > most or (most == 0 and allowed is not None))

    def answer_long_list(
        self, contexts: npt.ArrayLike, k: int, allow: IdLists, banned: IdArray | None
    ) -> Answer | None:
        """The answers to rows that share a long allow list; None where marks of it would not be searched."""
        allowed = take_list(allow, self.classes, self.classes)
        if allowed is None or not self.plan.searches_marks(k, allowed.size):
            return None
        marks = mark_long_list(allowed[0], self.classes)
        return None if marks is None else self.answer_marked(contexts, k, Members(marks), banned)

    def answer_marked(self, contexts: npt.ArrayLike, k: int, members: Members, ban: IdLists) -> Answer | None:
        """The answers among `members` of named sets alone, without the classes of a short ban list."""
        if self.find_request(k) is None:
            return None
        banned = take_list(ban, MAX_BANS, self.classes)
        if (banned is None) != (ban is None):
            return None
        if self.plan.searches_marks(k, members.count):
            return self.search_marked(contexts, k, members, banned)
        lists = restrict_to_members(ClassFilter(ban=banned), members)  # as the long way has them
        return answer_rows(self, contexts, k, lists.allow, lists.ban, None)

    def search_marked(self, contexts: npt.ArrayLike, k: int, members: Members, banned: IdArray | None) -> Answer | None:
        """The answers of rows that get `members`, which are marked, without those `banned` [1, m]."""
        struct, count = make_struct(None, banned), members.count
        struct.marks, struct.allow_size = members.permitted.ctypes.data, count
        request = self.find_marked_request(k, count).with_lists(struct)
        return self.ask(request, contexts, lambda: restrict_to_members(ClassFilter(ban=banned), members))

    def read_risk(self, answer: Answer) -> FloatArray:
        risk = None if self.plan.settings.is_narrower else read_risk(answer)
        return complete_risk(risk, answer[2] == self.classes)

    def find_promise(self, k: int) -> float | None:
        """The promise of the plan; none for so many classes that nothing is estimated."""
        return self.promise if k <= MAX_EFFORT_K else None

    def complete(self, answer: Answer, contexts: FloatArray, k: int, class_filter: ClassFilter) -> Answer | None:
        """The answer with exact ones of the rows that the loops left, each by itself; None where nothing gives them."""
        answers = self.plan.exact_answers
        if len(contexts) == 1 and answers and class_filter.is_plain:
            return answer_rows(answers, contexts, k, class_filter.allow, class_filter.ban, None)
        ids, logprobs, scored = answer
        for row in (scored == LEFT_ROW).nonzero()[0].tolist():
            exact = self.plan.answer_exactly(contexts[row : row + 1], k, class_filter)
            if exact is None:
                return None
            ids[row], logprobs[row], scored[row] = (part[0] for part in exact)
        return answer

    def find_listed_request(self, k: int) -> tuple[RequestStruct, int]:
        """The request for k classes where there are lists, but for these, and how long an allow list may be."""
        listed = self.listed.get(k)
        if listed is None:
            search = self.plan.plan_search(k, True)
            listed = self.listed[k] = RequestStruct.make(self.head, make_search(search), k), search.most_listed
        return listed
