"""Draws as a task: each request's by itself, since its noise and temperatures are its own."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from shortlist.core.bias import Bias, parse_bias
from shortlist.core.draws.sampling import Sampling
from shortlist.core.filters import ClassFilter
from shortlist.core.queries import SampleQuery
from shortlist.core.results import FloatArray, TopK
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist.plans.registry import Plan

from .slices import RESULT_CELL_BYTES, Slice, count_packed_bytes, split_rows

MAX_SERVED_DRAWS = 64  # of one row: more are a row each


@dataclass(slots=True, eq=False)
class SampleTask:
    """What `Head.sample` computes."""

    head: Head
    plan: Plan
    contexts: FloatArray
    sampling: Sampling
    class_filter: ClassFilter
    bias: Bias | None
    separate: bool = True
    is_lone: bool = True
    varies: bool = True
    width: int = 0
    k: int = 0

    @property
    def kind(self) -> Hashable:
        return id(self.plan), -1, self.sampling.draws.bit_length()

    @property
    def rows(self) -> int:
        return len(self.contexts)

    @property
    def result_bytes(self) -> int:
        return len(self.contexts) * self.sampling.draws * RESULT_CELL_BYTES

    @property
    def argument_bytes(self) -> int:
        bias = 0 if self.bias is None else self.bias.nbytes
        packed = count_packed_bytes(self.class_filter, self.rows)
        return self.contexts.nbytes + self.class_filter.nbytes + packed + bias

    def compute(self) -> TopK:
        return self.draw(0, self.rows)

    def compute_slices(self, slices: Sequence[Slice]) -> list[TopK]:
        return [self.draw(each.start, each.stop) for each in slices]

    def merge(self, parts: list[TopK]) -> TopK:
        return TopK.concat(parts)

    def draw(self, start: int, stop: int) -> TopK:
        """The draws of rows start to stop - 1, of as many at a time as their lists permit."""
        return TopK.concat([self.draw_part(*each) for each in split_rows(self.class_filter, start, stop)])

    def draw_part(self, start: int, stop: int) -> TopK:
        """The draws of rows start to stop - 1, in one call."""
        bias = None if self.bias is None else self.bias[start:stop]
        lists = self.class_filter.slice_rows(start, stop)
        return self.head.draw(self.contexts[start:stop], self.sampling.slice_rows(start, stop), lists, bias)


def make_sample_task(head: Head, query: SampleQuery) -> SampleTask:
    """The task of computing `query` with `head`, after all checks of its arguments; raises BadInput."""
    if query.sampling.draws > MAX_SERVED_DRAWS:
        raise BadInput(
            f"draws is {query.sampling.draws} and a server gives {MAX_SERVED_DRAWS}: send a row several times, with "
            "another seed each"
        )
    rows = head.check_contexts(query.contexts)
    bias = parse_bias(query.bias, len(rows), head.classes)
    class_filter = head.check_lists(query.allow, query.ban, len(rows))
    if query.sampling.top_k is not None:
        head.check_k(query.sampling.top_k)  # which requests call k
    plan, _ = head.choose_sample_plan(len(rows), query.sampling.top_k, bias)
    return SampleTask(head, plan, rows, query.sampling, class_filter, bias)
