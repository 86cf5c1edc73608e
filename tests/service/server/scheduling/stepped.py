"""A pool that runs what it is given when a test says so, and tasks for it."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor, Future

from shortlist.errors import BadInput


class Stepped(Executor):
    """Runs what it is given when the test says so."""

    def __init__(self):
        self.given = deque()

    def submit(self, function, /, *args):
        future = Future()
        self.given.append((future, function, args))
        return future

    def step(self):
        future, function, args = self.given.popleft()
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*args))
            except BaseException as error:
                future.set_exception(error)


class Doubled:
    """A task whose result is twice its numbers, which no other task has.

    fails: where it does: in a call that it shares, in one of its own, or in the end.
    """

    width = k = 0
    last = 0

    def __init__(self, rows, plan="plan", separate=False, fails=None):
        self.numbers = list(range(Doubled.last, Doubled.last + rows))
        Doubled.last += rows
        self.plan, self.separate, self.fails = plan, separate, fails
        self.computed = []
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
            piece.task.computed += range(piece.start, piece.stop)
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


async def settled(batcher):
    """What the loop has to do without the pool and the clock is done."""
    for tick in range(20_000):
        await asyncio.sleep(0)
        if tick > 5 and (batcher.busy or batcher.timer is not None or not batcher.queue.rows):
            return


async def all_stepped(batcher):
    await settled(batcher)
    while batcher.pool.given:
        batcher.pool.step()
        await settled(batcher)


def outcome(future):
    if future.cancelled():
        return asyncio.CancelledError
    return future.exception() or future.result()
