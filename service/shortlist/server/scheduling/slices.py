"""What a task is to the batcher: a checked request that can be computed in slices, alone or with others."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray
from shortlist.core.row_lists import RowLists
from shortlist.head import Head
from shortlist.plans.registry import Plan

RESULT_CELL_BYTES = 12  # an int64 id and a float32 log-probability
PACKED_ID_BYTES = 8
MAX_PACKED_IDS = 1 << 22  # of lists that searches take as rows of equal length


class Task(Protocol):
    """A query whose arguments are checked, bound to the plan that computes it."""

    @property
    def head(self) -> Head:
        """The head that it is for."""

    @property
    def contexts(self) -> FloatArray:
        """[B, d], its context vectors."""

    @property
    def plan(self) -> Plan:
        """The plan that computes the task."""

    @property
    def k(self) -> int:
        """Classes wanted for each row; 0 where they are named."""

    @property
    def rows(self) -> int:
        """How many context vectors it has."""

    @property
    def result_bytes(self) -> int:
        """Bytes of the ids and log-probabilities of the result."""

    @property
    def argument_bytes(self) -> int:
        """Bytes of the arrays of its query."""

    @property
    def separate(self) -> bool:
        """Whether its slices never share a call with those of other tasks."""

    @property
    def varies(self) -> bool:
        """Whether it may take many times what others of its kind take, so that a thread should compute it."""

    @property
    def width(self) -> int:
        """How widely the plan searches for it; 0 where it does not search."""

    @property
    def is_lone(self) -> bool:
        """Whether its rows are computed one after the other, so that nothing is gained by gathering them."""

    @property
    def kind(self) -> Hashable:
        """Tasks of one kind take about as long a row.

        They have one plan, which searches about as widely, for about as many classes, with lists about as long.
        """

    def compute(self) -> Any:
        """The whole result at once; raises BadInput."""

    def compute_slices(self, slices: Sequence[Slice]) -> list[Any]:
        """The partial results of `slices` of tasks of one group, in one call."""

    def merge(self, parts: list[Any]) -> Any:
        """The result, from the partial results of all rows in order; raises BadInput."""


class Slice(NamedTuple):
    """Rows start..stop of a task."""

    task: Task
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many context vectors it has."""
        return self.stop - self.start

    @property
    def group(self) -> Hashable:
        """Slices of equal groups may share a call."""
        return (id(self.task), self.start) if self.task.separate else (id(self.task.plan), self.task.width)


def split_rows(class_filter: ClassFilter, start: int, stop: int) -> list[tuple[int, int]]:
    """Rows start to stop - 1 in parts that are searched one after the other, for the memory that their lists take."""
    size = max(1, MAX_PACKED_IDS // max(1, count_longest(class_filter)))
    if stop - start <= size:
        return [(start, stop)]
    return [(first, min(first + size, stop)) for first in range(start, stop, size)]


def count_packed_bytes(class_filter: ClassFilter, rows: int) -> int:
    """How many bytes the lists of `rows` rows take at most while they are searched, beside the tables of lists."""
    longest = count_longest(class_filter)
    return min(rows * longest, max(longest, MAX_PACKED_IDS)) * PACKED_ID_BYTES


def count_longest(class_filter: ClassFilter) -> int:
    """How many ids the longest lists have together that rows refer to, 0 where all rows have the same."""
    tables = [each for each in (class_filter.allow, class_filter.ban) if isinstance(each, RowLists)]
    return sum(table.count_longest() for table in tables if not table.is_shared())
