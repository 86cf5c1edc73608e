"""The batcher of a model: it gathers what arrives while a batch is computed; an idle model computes at once.

All state belongs to the event loop; only `compute_batch` runs in a thread. One batch of a model is computed at a time,
so that what it costs is known and nothing waits for a timer: the next batch starts when the last one is done.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

from shortlist.core.moving_average import ClippedAverage

from .admission import Admission, make_deadline_error
from .fair_queue import FairQueue, QueuedTask
from .slices import Slice, Task

# Of the seconds that a row takes, by kind of task. A batch that took over `clip` times as long met a busy system.
TASK_SECONDS_AVERAGE = ClippedAverage(recent_weight=1 - 0.9, clip=2.0)
# What one client's draws take varies by far more, and their batches are to stay short.
DRAW_SECONDS_AVERAGE = ClippedAverage(recent_weight=0.5, clip=8.0)
LONE_INLINE_FACTOR = 3  # times `inline`, up to which lone rows are computed in the event loop: threads gain nothing
MAX_LONE_SECONDS = 0.05  # that a batch is expected to take of rows that gain nothing by being gathered
MAX_TELLING_ROWS = 4  # more rows at once are many: they take less time each, and say little of one


class Computation(NamedTuple):
    """A task's result.

    seconds: of computing it. queue_seconds: that it waited before. end: when it was ready, by `time.perf_counter`.
    inline_rows: rows that were computed in the event loop, as a batch of their own; None where batches computed them.
    """

    result: Any
    seconds: float
    queue_seconds: float
    end: float
    inline_rows: int | None = None


Notify = Callable[[int, int, float], None]  # rows computed together, requests that they came from, seconds it took


def ignore_batch(rows: int, requests: int, seconds: float) -> None:
    """Do nothing with a batch's figures: the default where nobody counts batches."""


class Batcher:
    """Computes the tasks of one model in batches: in a thread, or in the event loop where they are small."""

    def __init__(
        self,
        pool: Executor,
        batch_rows: int,
        delay: float = 0.0,
        inline: float = 0.0,
        admission: Admission | None = None,
        notify: Notify = ignore_batch,
    ) -> None:
        """batch_rows: most rows in one batch. delay: seconds that an idle model waits for more rows; 0 for none.

        inline: a task expected to take at most so many seconds is computed in the event loop; a thread costs more.
        admission: gets the rows and seconds of every batch. notify: likewise, but not of tasks computed inline.
        """
        self.pool, self.batch_rows, self.delay, self.inline = pool, batch_rows, delay, inline
        self.admission, self.notify = admission, notify
        self.queue = FairQueue()
        self.busy = False
        self.row_seconds: dict[Hashable, float] = {}  # moving averages by kind of task, of few rows at once
        self.many_row_seconds: dict[Hashable, float] = {}  # the same of many
        self.timer: asyncio.TimerHandle | None = None

    def is_small(self, task: Task, rows: int) -> bool:
        """Whether so many rows are expected to fit `inline`; False until this kind of task was timed once."""
        if task.varies:
            return False
        limit = self.inline * LONE_INLINE_FACTOR if task.is_lone else self.inline
        return self.estimate_row(task.kind, rows) * rows <= limit

    def estimate_row(self, kind: Hashable, rows: int) -> float:
        """The seconds that a row of a kind of task is expected to take among `rows`; infinite until one was timed.

        Many take less time each than few, so what few took is believed of them unless they took longer.
        """
        few, many = self.row_seconds.get(kind, 0.0), self.many_row_seconds.get(kind, 0.0)
        known = max(few, many) if rows > MAX_TELLING_ROWS else few or many
        return known or math.inf

    def fits_inline(self, task: Task) -> bool:
        """Whether to call `compute_inline`: nothing runs or waits, and the task is small."""
        return not self.busy and not self.queue.rows and not self.delay and self.is_small(task, task.rows)

    def compute_inline(self, task: Task) -> Computation:
        """The result of a small task, computed on the spot in the event loop.

        Only while nothing runs or waits. Raises ShortlistError.
        """
        start = time.perf_counter()
        result = task.compute()
        seconds = time.perf_counter() - start
        rows = task.rows
        if rows:
            self.note_row_seconds(task, rows, seconds)
        if self.admission is not None:
            self.admission.note_batch(rows, seconds)
        return Computation(result, seconds, 0.0, time.perf_counter(), rows)

    def submit(self, task: Task, client: str = "", priority: int = 0) -> QueuedTask:
        """Put a task of at least one row into the queue; `future` of what is returned becomes the result."""
        entry = QueuedTask(task, asyncio.get_running_loop().create_future(), client, priority)
        self.queue.push(entry)
        self.schedule_batch()
        return entry

    def drop(self, entry: QueuedTask, error: Exception | None = None) -> None:
        """Compute no more of a task; `error` becomes its result, if anybody still waits for one."""
        self.queue.remove(entry)
        if not entry.future.done():
            if error is None:
                entry.future.cancel()
            else:
                entry.future.set_exception(error)

    def expire(self, entry: QueuedTask) -> None:
        """Drop a task whose request's time is over."""
        self.drop(entry, make_deadline_error())

    def schedule_batch(self) -> None:
        """Start a batch if none runs and something waits; with a delay, once it is over or the batch is full."""
        if self.busy or not self.queue.rows:
            return
        if self.delay and self.queue.rows < self.batch_rows:
            if self.timer is None:
                self.timer = asyncio.get_running_loop().call_later(self.delay, self.start_batch)
            return
        self.start_batch()

    def start_batch(self) -> None:
        """Compute what waits: in a thread, or in the event loop where it is small."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.busy or not self.queue.rows:
            return
        batch = self.queue.take(self.batch_rows, MAX_LONE_SECONDS, self.estimate_lone_row)
        now = time.perf_counter()
        for entry in batch:
            entry.compute_start = entry.compute_start or now
        slices = list(batch.values())
        rows = sum(each.rows for each in slices)
        self.busy = True
        if all(self.is_small(each.task, rows) for each in slices):
            self.deliver_batch(batch, *compute_batch(slices))
            return
        running = asyncio.get_running_loop().run_in_executor(self.pool, compute_batch, slices)
        running.add_done_callback(lambda future: self.finish_batch(batch, future))

    def finish_batch(self, batch: dict[QueuedTask, Slice], running: asyncio.Future[tuple[list[Any], float]]) -> None:
        """Deliver what a thread has computed."""
        if running.cancelled():  # the server stops
            return
        error = running.exception()
        if error is None:
            self.deliver_batch(batch, *running.result())
            return
        self.busy = False  # not foreseen; nobody must wait for ever if it comes
        for entry in batch:
            self.drop(entry, RuntimeError(f"a batch failed: {error}"))
        self.schedule_batch()

    def deliver_batch(self, batch: dict[QueuedTask, Slice], parts: list[Any], seconds: float) -> None:
        """Give each task its part of a batch that took `seconds`, then go on with the next."""
        self.busy = False
        self.note_batch(list(batch.values()), len(batch), seconds)
        for (entry, piece), part in zip(batch.items(), parts, strict=True):
            self.deliver_part(entry, piece, part)
        # not from here: a thousand small batches would be nested
        asyncio.get_running_loop().call_soon(self.schedule_batch)

    def deliver_part(self, entry: QueuedTask, piece: Slice, part: Any) -> None:
        """Keep one partial result, or the exception in its place; the last one completes the task."""
        if entry.future.done():
            return
        if isinstance(part, Exception):
            self.drop(entry, part)
            return
        entry.parts[piece.start] = part
        entry.rows_done += piece.rows
        if entry.rows_done == entry.task.rows:
            try:
                entry.future.set_result(entry.task.merge([entry.parts[start] for start in sorted(entry.parts)]))
            except Exception as error:  # becomes the result of this one request
                entry.future.set_exception(error)

    def note_batch(self, slices: Sequence[Slice], requests: int, seconds: float) -> None:
        """Pass on how long a batch took, to admission, `notify` and the averages."""
        rows = sum(each.rows for each in slices)
        kinds = {each.task.kind for each in slices}
        if len(kinds) == 1:
            self.note_row_seconds(slices[0].task, rows, seconds)
        if self.admission is not None:
            self.admission.note_batch(rows, seconds)
        self.notify(rows, requests, seconds)

    def note_row_seconds(self, task: Task, rows: int, seconds: float) -> None:
        """Take into account what a row of one kind of task took among so many rows, to raise or lower what is expected.

        Where rows are computed one after the other, any number tells. Of other tasks that vary nothing is noted.
        """
        if task.varies and not task.is_lone:
            return
        few = task.is_lone or rows <= MAX_TELLING_ROWS
        averages = self.row_seconds if few else self.many_row_seconds
        known = averages.get(task.kind, 0.0 if few else self.row_seconds.get(task.kind, 0.0))
        average = DRAW_SECONDS_AVERAGE if task.varies else TASK_SECONDS_AVERAGE
        averages[task.kind] = average.update(known, seconds / rows)

    def estimate_lone_row(self, task: Task) -> float:
        """The seconds that a row of the task is expected to take; 0 where rows gain by being gathered."""
        return self.row_seconds.get(task.kind, MAX_LONE_SECONDS / MAX_TELLING_ROWS) if task.is_lone else 0.0

    def forget_speed(self) -> None:
        """Forget how long rows took: another head computes from now on."""
        self.row_seconds.clear()
        self.many_row_seconds.clear()


def compute_batch(slices: list[Slice]) -> tuple[list[Any], float]:
    """The partial results of `slices`, in order, an exception where one failed; and the seconds they took."""
    start = time.perf_counter()
    groups: dict[Hashable, list[Slice]] = {}
    for each in slices:
        groups.setdefault(each.group, []).append(each)
    parts: dict[Slice, Any] = {}
    for group in groups.values():
        parts.update(zip(group, compute_group(group), strict=True))
    return [parts[each] for each in slices], time.perf_counter() - start


def compute_group(slices: list[Slice]) -> list[Any]:
    """The partial results of one group; where it fails, each slice by itself, so that one failure is one request's."""
    try:
        return slices[0].task.compute_slices(slices)
    except Exception as error:  # becomes the result of the request that it belongs to
        return [error] if len(slices) == 1 else [compute_group([each])[0] for each in slices]
