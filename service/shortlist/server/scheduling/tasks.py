"""Checked requests as tasks, whose slices may be computed together with those of others.

A row's answer depends on its own request alone: that request's number of rows and its k choose the plan, and slices
share a call only where the plan searches both equally widely. What other rows hold, of any request, changes nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.core.arrays import check_finite
from shortlist.core.bias import Bias, parse_bias
from shortlist.core.filters import ClassFilter
from shortlist.core.queries import BeamQuery, Query, SampleQuery, ScoreQuery, Scores, TopKQuery
from shortlist.core.results import FloatArray, IdArray, IntArray, PlanResult, TopK
from shortlist.decoding.step import BeamSearchRows, choose_rows
from shortlist.errors import TooLarge
from shortlist.head import Head
from shortlist.items.live_head import LiveHead
from shortlist.plans.common.normalizer import make_scored_topk
from shortlist.plans.registry import Plan

from .sample_task import make_sample_task
from .slices import RESULT_CELL_BYTES, Slice, Task, count_packed_bytes, split_rows

UNEVEN_LIST_BYTES = 8 << 10  # of lists, such as 1,024 ids: a search with so many may take many times what others do


@dataclass(slots=True, eq=False)
class SearchTask:
    """A search for the k best classes of rows. separate: there are lists or biases, of the request's own shape."""

    head: Head
    plan: Plan
    normalizer: str
    contexts: FloatArray
    k: int
    class_filter: ClassFilter
    bias: Bias | None
    kind: Hashable
    separate: bool
    varies: bool

    @property
    def rows(self) -> int:
        return len(self.contexts)

    @property
    def result_bytes(self) -> int:
        return len(self.contexts) * self.k * RESULT_CELL_BYTES

    @property
    def argument_bytes(self) -> int:
        if not self.separate:
            return self.contexts.nbytes
        bias = 0 if self.bias is None else self.bias.nbytes
        packed = count_packed_bytes(self.class_filter, self.rows)
        return self.contexts.nbytes + self.class_filter.nbytes + packed + bias

    @property
    def is_lone(self) -> bool:
        return isinstance(self.head, LiveHead) and self.head.computes_rows_alone(self.plan)

    @property
    def width(self) -> int:
        return self.plan.width(self.k)

    def search(self) -> PlanResult:
        """The k best of all rows."""
        if not self.separate:
            return self.head.run(self.plan, self.contexts, self.k, self.class_filter, None)
        return self.search_rows(0, self.rows)

    def compute_slices(self, slices: Sequence[Slice]) -> list[PlanResult]:
        if self.separate:  # then there is one slice
            return [self.search_rows(slices[0].start, slices[0].stop)]
        tasks: list[SearchTask] = [each.task for each in slices]  # type: ignore[misc]  # of one group, so of one kind
        parts = [task.contexts[each.start : each.stop] for task, each in zip(tasks, slices, strict=True)]
        contexts = parts[0] if len(parts) == 1 else np.concatenate(parts)
        result = self.head.run(self.plan, contexts, max(task.k for task in tasks), self.class_filter, None)
        if len(slices) == 1:
            return [result]
        ends = np.cumsum([len(part) for part in parts])
        return [result.slice(end - len(part), end, task.k) for task, part, end in zip(tasks, parts, ends, strict=True)]

    def search_rows(self, start: int, stop: int) -> PlanResult:
        """The k best of rows start to stop - 1, of as many at a time as their lists permit."""
        return PlanResult.concat([self.search_part(*each) for each in split_rows(self.class_filter, start, stop)])

    def search_part(self, start: int, stop: int) -> PlanResult:
        """The k best of rows start to stop - 1, in one call."""
        bias = None if self.bias is None else self.bias[start:stop]
        lists = self.class_filter.slice_rows(start, stop)
        return self.head.run(self.plan, self.contexts[start:stop], self.k, lists, bias)


@dataclass(slots=True, eq=False)
class TopKTask(SearchTask):
    """`Head.topk`."""

    def with_contexts(self, contexts: FloatArray) -> TopKTask:
        """The same task for other `contexts` of the same shape; raises BadInput where they are not finite."""
        rows = check_finite(contexts if contexts.dtype == np.float32 else contexts.astype(np.float32))
        return TopKTask(
            self.head,
            self.plan,
            self.normalizer,
            rows,
            self.k,
            self.class_filter,
            self.bias,
            self.kind,
            self.separate,
            self.varies,
        )

    def compute(self) -> TopK:
        return make_scored_topk(self.search(), self.normalizer)

    def merge(self, parts: list[PlanResult]) -> TopK:
        return make_scored_topk(PlanResult.concat(parts), self.normalizer)


@dataclass(slots=True, eq=False)
class BeamTask(SearchTask):
    """The search of a beam step: its rows may share batches with those of other requests."""

    step: BeamSearchRows

    def compute(self) -> BeamResult:
        return self.merge([self.search()])

    def merge(self, parts: list[PlanResult]) -> BeamResult:
        return BeamResult(self.step, PlanResult.concat(parts))


@dataclass(slots=True)
class BeamResult:
    """What the head found for a beam step, of which `continue_beams` makes the continuations."""

    step: BeamSearchRows
    rows: PlanResult

    @property
    def normalizer(self) -> str:
        """What the log-probabilities are normalised over."""
        return self.step.normalizer

    @property
    def scored(self) -> IntArray:
        """[L] classes scored for each row that was searched."""
        return self.rows.scored

    @property
    def risk(self) -> FloatArray | None:
        """[L] estimated for each row that was searched; None where the plan estimates none."""
        return self.rows.risk


@dataclass(slots=True, eq=False)
class ScoreTask:
    """A request for the log-probabilities of given ids: what `Head.logprobs` computes."""

    head: Head
    plan: Plan
    normalizer: str
    contexts: FloatArray
    ids: IdArray
    separate: bool = True
    is_lone: bool = False
    varies: bool = True
    width: int = 0
    k: int = 0

    @property
    def kind(self) -> Hashable:
        return id(self.plan), 0, 0

    @property
    def rows(self) -> int:
        return len(self.contexts)

    @property
    def result_bytes(self) -> int:
        return int(self.ids.size) * RESULT_CELL_BYTES

    @property
    def argument_bytes(self) -> int:
        return self.contexts.nbytes + self.ids.nbytes

    def compute(self) -> Scores:
        return self.merge([self.head.score(self.plan, self.contexts, self.ids)])

    def compute_slices(self, slices: Sequence[Slice]) -> list[FloatArray]:
        return [
            self.head.score(
                self.plan, self.contexts[each.start : each.stop], self.ids[each.start : each.stop], each.start
            )
            for each in slices
        ]

    def merge(self, parts: list[FloatArray]) -> Scores:
        return Scores(self.ids, np.concatenate(parts), self.normalizer)


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The largest request that a server computes: rows, and bytes of ids and log-probabilities of its result."""

    max_rows: int
    max_result_bytes: int

    def check(self, query: Query) -> None:
        """Raise TooLarge for a query that would take too much memory to compute."""
        rows = len(query.contexts)
        if rows > self.max_rows:
            raise TooLarge(
                f"the request has {rows} rows and this server takes {self.max_rows}: send fewer in one request"
            )
        size = query.result_size * RESULT_CELL_BYTES
        if size > self.max_result_bytes:
            raise TooLarge(
                f"the answer would have {size} bytes, over the limit of {self.max_result_bytes}: "
                "ask for fewer rows or a smaller k"
            )


def make_task(head: Head, query: Query, limits: SizeLimits | None = None) -> Task:
    """The task of computing `query` with `head`, after all checks of its arguments; raises BadInput, TooLarge."""
    if limits is not None:
        limits.check(query)
    if isinstance(query, BeamQuery):
        return make_beam_task(head, query)
    if isinstance(query, SampleQuery):
        return make_sample_task(head, query)
    rows = head.check_contexts(query.contexts)
    if isinstance(query, ScoreQuery):
        ids = head.check_ids(query.ids, len(rows))
        return ScoreTask(head, *head.choose_score_plan(len(rows), ids.shape[1], query.exact), rows, ids)
    return make_topk_task(head, query, rows)


def make_topk_task(head: Head, query: TopKQuery, rows: FloatArray) -> TopKTask:
    """The task of finding the k best classes of `rows` [B, d], which are checked."""
    head.check_k(query.k)
    bias = parse_bias(query.bias, len(rows), head.classes)
    plan, normalizer = head.choose_plan(len(rows), query.k, query.exact, proof=bias is None)
    plan = plan.tolerate_loss() if query.partial else plan
    class_filter = head.check_filter(query.allow, query.ban, len(rows), query.within, query.without)
    arguments = name_kind(plan, query.k, class_filter, bias), *describe_load(head, class_filter, bias)
    return TopKTask(head, plan, normalizer, rows, query.k, class_filter, bias, *arguments)


def make_beam_task(head: Head, query: BeamQuery) -> BeamTask:
    """The task of a beam step."""
    step = choose_rows(head, query)
    plan, k, class_filter, bias = step.plan, step.k, step.class_filter, step.bias
    arguments = name_kind(plan, k, class_filter, bias), *describe_load(head, class_filter, bias)
    return BeamTask(head, plan, step.normalizer, step.contexts, k, class_filter, bias, *arguments, step)


def name_kind(plan: Plan, k: int, class_filter: ClassFilter, bias: Bias | None) -> Hashable:
    """What tasks have in common that take about as long a row: numbers go by their lengths, so that kinds are few."""
    width = plan.width(k)
    lists = class_filter.restricts and (class_filter.allow is None, class_filter.nbytes.bit_length())
    return id(plan), width < 0, width.bit_length(), k.bit_length(), lists, bias is None


def describe_load(head: Head, class_filter: ClassFilter, bias: Bias | None) -> tuple[bool, bool]:
    """Whether a search with these is `separate`, and whether it `varies`.

    Lists do among items that were changed, of which they may leave each to be scored.
    """
    separate = class_filter.restricts or bias is not None
    is_uneven = class_filter.forced is not None or class_filter.nbytes >= UNEVEN_LIST_BYTES
    return separate, separate and (bias is not None or is_uneven or isinstance(head, LiveHead))
