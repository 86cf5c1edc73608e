"""The queue of a model: by priority, then round-robin over clients, then over a client's requests.

Nobody waits for the whole of another's large request: a turn is of at most `TURN_ROWS` rows.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from shortlist.core.queries import Result

from .slices import Slice, Task

TURN_ROWS = 16  # of one request before another has its turn


@dataclass(eq=False)
class QueuedTask:
    """A task that was submitted; the result, or the error, is set on `future`.

    client: who asks, for fairness. priority: lower goes first. rows_started: rows that are computed or being computed.
    parts: partial results by their first row. compute_start: of its first batch, by `perf_counter`; 0 for none yet.
    """

    task: Task
    future: asyncio.Future[Result]
    client: str = ""
    priority: int = 0
    rows_started: int = 0
    rows_done: int = 0
    parts: dict[int, Any] = field(default_factory=dict)
    compute_start: float = 0.0

    @property
    def rows_left(self) -> int:
        """How many rows of the task have not been given out yet."""
        return self.task.rows - self.rows_started


def ignore_seconds(task: Task) -> float:
    """No time: the default where rows alone are counted."""
    del task
    return 0.0


class FairQueue:
    """Tasks with rows left. rows: of all of them."""

    def __init__(self) -> None:
        self.levels: dict[int, OrderedDict[str, deque[QueuedTask]]] = {}
        self.rows = 0

    def push(self, entry: QueuedTask) -> None:
        """Put a task at the end of its client's line."""
        self.get_line(entry).append(entry)
        self.rows += entry.rows_left

    def get_line(self, entry: QueuedTask) -> deque[QueuedTask]:
        """The line of the task's client at its priority."""
        return self.levels.setdefault(entry.priority, OrderedDict()).setdefault(entry.client, deque())

    def remove(self, entry: QueuedTask) -> None:
        """Take a task out, if it is still in the queue."""
        clients = self.levels.get(entry.priority, OrderedDict())
        line = clients.get(entry.client)
        if line is not None and entry in line:
            line.remove(entry)
            self.rows -= entry.rows_left
            self.drop_empty(entry.priority, entry.client)

    def take(
        self, rows: int, seconds: float = math.inf, estimate: Callable[[Task], float] = ignore_seconds
    ) -> dict[QueuedTask, Slice]:
        """Up to `rows` rows to compute next, each task's in one slice; they count as started.

        No more follow rows that are expected to take `seconds`, by what a row of a task takes as `estimate` says.
        """
        slices: dict[QueuedTask, Slice] = {}
        while rows > 0 and seconds > 0 and self.levels:
            entry = self.pop_next()
            row_seconds = estimate(entry.task)
            count = min(TURN_ROWS, entry.rows_left, rows)
            if row_seconds * count > seconds:
                count = math.ceil(seconds / row_seconds)
            seconds -= row_seconds * count
            start = slices[entry].start if entry in slices else entry.rows_started
            entry.rows_started += count
            slices[entry] = Slice(entry.task, start, entry.rows_started)
            self.rows -= count
            rows -= count
            if entry.rows_left:
                self.get_line(entry).append(entry)
        return slices

    def pop_next(self) -> QueuedTask:
        """The task whose turn it is, taken out of its line; its client goes behind the others."""
        priority = min(self.levels)
        client, line = next(iter(self.levels[priority].items()))
        entry = line.popleft()
        self.levels[priority].move_to_end(client)
        self.drop_empty(priority, client)
        return entry

    def drop_empty(self, priority: int, client: str) -> None:
        """Drop a client, and a priority, of which nothing waits."""
        if not self.levels[priority][client]:
            del self.levels[priority][client]
        if not self.levels[priority]:
            del self.levels[priority]
