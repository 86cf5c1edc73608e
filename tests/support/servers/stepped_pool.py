"""A pool that runs what it is given when a test says so, and tasks for it."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor, Future

from shortlist.errors import BadInput


class SteppedPool(Executor):
    """Runs what it is given when the test says so."""

    def __init__(self):
        self.jobs = deque()

    def submit(self, function, /, *args):
        future = Future()
        self.jobs.append((future, function, args))
        return future

    def step(self):
        future, function, args = self.jobs.popleft()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)


class DoublingTask:
    """A task whose result is twice its numbers, which no other task has.

    fails: where it does: in a call that it shares, in one of its own, or in the end.
    """

    width = k = 0
    last = 0

    def __init__(self, rows, plan="plan", separate=False, fails=None, is_lone=False, varies=None):
        self.numbers = list(range(DoublingTask.last, DoublingTask.last + rows))
        DoublingTask.last += rows
        self.plan, self.separate, self.fails, self.is_lone = plan, separate, fails, is_lone
        self.varies = separate if varies is None else varies
        self.row_log = []
        self.calls = 0

    @property
    def rows(self):
        return len(self.numbers)

    @property
    def kind(self):
        return id(self.plan), self.width, self.k.bit_length()

    def compute(self):
        return self.merge([self.expected])

    def compute_slices(self, pieces):
        assert len({piece.group for piece in pieces}) == 1
        assert len(pieces) == 1 or not self.separate
        for piece in pieces:
            if piece.task.fails == "part":
                raise BadInput(f"{piece.task.numbers[0]} fails")
        for piece in pieces:
            piece.task.calls += 1
            piece.task.row_log += range(piece.start, piece.stop)
        return [[2 * number for number in piece.task.numbers[piece.start : piece.stop]] for piece in pieces]

    def merge(self, parts):
        if self.fails == "end":
            raise BadInput(f"{self.numbers[0]} fails")
        if self.fails == "unforeseen":
            raise RuntimeError(f"{self.numbers[0]} fails")
        return [number for part in parts for number in part]

    @property
    def expected(self):
        return [2 * number for number in self.numbers]


async def settle(batcher):
    """What the loop has to do without the pool and the clock is done."""
    for tick in range(20_000):
        await asyncio.sleep(0)
        if tick > 5 and (batcher.busy or batcher.timer is not None or not batcher.queue.rows):
            return


async def step_to_end(batcher):
    await settle(batcher)
    while batcher.pool.jobs:
        batcher.pool.step()
        await settle(batcher)


def outcome(future):
    if future.cancelled():
        return asyncio.CancelledError
    return future.exception() or future.result()
