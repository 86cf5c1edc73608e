"""The batcher, whatever comes, leaves, fails or runs out of time, and when."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shortlist.errors import BadInput, TimedOut
from shortlist.server.scheduling.batcher import Batcher

from tests.support.servers.stepped_pool import DoublingTask, SteppedPool, outcome, settle

CLIENTS = ("a", "b", "c")


class Gathering(RuleBasedStateMachine):
    """Requests come, leave and run out of time while batches run, one step at a time."""

    @initialize(
        rows=st.sampled_from([1, 7, 16, 64, 100]),
        delay=st.sampled_from([0.0, 3600.0]),
        inline=st.sampled_from([0.0, 3600.0]),
    )
    def begin(self, rows, delay, inline):
        self.loop = asyncio.new_event_loop()
        self.pool = SteppedPool()
        self.batches = []
        self.batcher = Batcher(self.pool, rows, delay, inline, notify=lambda *batch: self.batches.append(batch))
        self.requests = []
        self.dropped = {}  # rows that were taken when it was, by request
        self.errors = {}
        self.cancelled = set()

    def do(self, action=lambda: None):
        async def inside():
            result = action()
            await settle(self.batcher)
            return result

        return self.loop.run_until_complete(inside())

    @rule(
        rows=st.integers(1, 100),
        client=st.sampled_from(CLIENTS),
        priority=st.integers(0, 2),
        plan=st.sampled_from(["plan", "plan", "dense"]),
        separate=st.sampled_from([False, False, True]),
        fails=st.sampled_from([None] * 6 + ["part", "end"]),
    )
    def submit(self, rows, client, priority, plan, separate, fails):
        task = DoublingTask(rows, plan, separate, fails)
        self.requests.append(self.do(lambda: self.batcher.submit(task, client, priority)))

    @rule(many=st.integers(2, 30), client=st.sampled_from(CLIENTS))
    def submit_single_rows(self, many, client):
        def action():
            return [self.batcher.submit(DoublingTask(1), client) for _ in range(many)]

        self.requests += self.do(action)

    @property
    def open(self):
        return [each for each in self.requests if not each.future.done()]

    @precondition(lambda self: self.open)
    @rule(data=st.data(), how=st.sampled_from(["expire", "drop", "error"]))
    def leave(self, data, how):
        entry = data.draw(st.sampled_from(self.open))
        self.dropped[entry] = entry.rows_started
        if how == "expire":
            self.errors[entry] = TimedOut
            self.do(lambda: self.batcher.expire(entry))
        elif how == "drop":
            self.errors[entry] = asyncio.CancelledError
            self.do(lambda: self.batcher.drop(entry))
        else:
            self.errors[entry] = ConnectionError
            self.do(lambda: self.batcher.drop(entry, ConnectionError()))
        assert entry.future.done()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data):
        entry = data.draw(st.sampled_from(self.open))
        self.cancelled.add(entry)
        self.do(entry.future.cancel)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave_when_it_is_over(self, data):
        entry = data.draw(st.sampled_from(self.requests))
        if entry.future.done():
            before = outcome(entry.future)
            self.do(lambda: self.batcher.expire(entry))
            assert outcome(entry.future) is before

    @rule()
    def run(self):
        if self.batcher.timer is not None:  # the delay is over
            self.do(self.batcher.start_batch)
        if self.pool.jobs:
            self.pool.step()
        self.do()

    @invariant()
    def one_batch_within_its_bounds_runs(self):
        if hasattr(self, "pool"):
            assert len(self.pool.jobs) <= 1
            assert self.batcher.busy == bool(self.pool.jobs)
            for _, _, (pieces,) in self.pool.jobs:
                assert 1 <= sum(piece.stop - piece.start for piece in pieces) <= self.batcher.batch_rows
            assert all(1 <= rows <= self.batcher.batch_rows and requests <= rows for rows, requests, _ in self.batches)

    @invariant()
    def rows_of_the_queue_are_those_that_wait(self):
        if hasattr(self, "pool"):
            lines = self.batcher.queue.levels.values()
            queued_entries = [each for clients in lines for line in clients.values() for each in line]
            assert self.batcher.queue.rows == sum(each.rows_left for each in queued_entries)
            assert len(set(queued_entries)) == len(queued_entries)
            waits = {each for each in self.open if each.rows_left}
            assert waits <= set(queued_entries) <= waits | self.cancelled
            assert self.batcher.busy or self.batcher.timer or not queued_entries

    @invariant()
    def answers_are_the_callers_own(self):
        for entry in getattr(self, "requests", []):
            self.check(entry)

    def check(self, entry):
        """What is known of one request now."""
        task = entry.task
        assert max(Counter(task.row_log).values(), default=1) == 1
        assert task.row_log == list(range(len(task.row_log)))
        if entry in self.dropped:
            assert len(task.row_log) <= self.dropped[entry]
        if not entry.future.done():
            return
        result = outcome(entry.future)
        if entry in self.errors:
            assert result is self.errors[entry] or isinstance(result, self.errors[entry])
        elif entry in self.cancelled:
            assert result is asyncio.CancelledError
        elif task.fails is not None:
            assert isinstance(result, BadInput)
            assert str(result) == f"{task.numbers[0]} fails"
        else:
            assert result == task.expected

    def teardown(self):
        if hasattr(self, "pool"):
            while self.batcher.busy or self.batcher.queue.rows:
                self.run()
            assert not self.open
            self.answers_are_the_callers_own()
            self.loop.close()


TestGathering = Gathering.TestCase
