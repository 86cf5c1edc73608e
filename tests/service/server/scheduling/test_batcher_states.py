"""The batcher, whatever comes, leaves, fails or runs out of time, and when."""

from __future__ import annotations

import asyncio
from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shortlist.errors import BadInput, TimedOut
from shortlist.server.scheduling.batcher import Batcher

from .stepped import Doubled, Stepped, outcome, settled

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
        self.pool = Stepped()
        self.batches = []
        self.batcher = Batcher(self.pool, rows, delay, inline, notify=lambda *batch: self.batches.append(batch))
        self.requests = []
        self.dropped = {}  # rows that were taken when it was, by request
        self.errors = {}
        self.cancelled = set()

    def do(self, action=lambda: None):
        async def inside():
            found = action()
            await settled(self.batcher)
            return found

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
        task = Doubled(rows, plan, separate, fails)
        self.requests.append(self.do(lambda: self.batcher.submit(task, client, priority)))

    @rule(many=st.integers(2, 30), client=st.sampled_from(CLIENTS))
    def submit_single_rows(self, many, client):
        def action():
            return [self.batcher.submit(Doubled(1), client) for _ in range(many)]

        self.requests += self.do(action)

    @property
    def open(self):
        return [each for each in self.requests if not each.future.done()]

    @precondition(lambda self: self.open)
    @rule(data=st.data(), how=st.sampled_from(["expire", "drop", "error"]))
    def leave(self, data, how):
        waiting = data.draw(st.sampled_from(self.open))
        self.dropped[waiting] = waiting.rows_started
        if how == "expire":
            self.errors[waiting] = TimedOut
            self.do(lambda: self.batcher.expire(waiting))
        elif how == "drop":
            self.errors[waiting] = asyncio.CancelledError
            self.do(lambda: self.batcher.drop(waiting))
        else:
            self.errors[waiting] = ConnectionError
            self.do(lambda: self.batcher.drop(waiting, ConnectionError()))
        assert waiting.future.done()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def cancel(self, data):
        waiting = data.draw(st.sampled_from(self.open))
        self.cancelled.add(waiting)
        self.do(waiting.future.cancel)

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def leave_when_it_is_over(self, data):
        waiting = data.draw(st.sampled_from(self.requests))
        if waiting.future.done():
            before = outcome(waiting.future)
            self.do(lambda: self.batcher.expire(waiting))
            assert outcome(waiting.future) is before

    @rule()
    def run(self):
        if self.batcher.timer is not None:  # the delay is over
            self.do(self.batcher.start_batch)
        if self.pool.given:
            self.pool.step()
        self.do()

    @invariant()
    def one_batch_within_its_bounds_runs(self):
        if hasattr(self, "pool"):
            assert len(self.pool.given) <= 1
            assert self.batcher.busy == bool(self.pool.given)
            for _, _, (pieces,) in self.pool.given:
                assert 1 <= sum(piece.stop - piece.start for piece in pieces) <= self.batcher.batch_rows
            assert all(1 <= rows <= self.batcher.batch_rows and requests <= rows for rows, requests, _ in self.batches)

    @invariant()
    def rows_of_the_queue_are_those_that_wait(self):
        if hasattr(self, "pool"):
            lines = self.batcher.queue.levels.values()
            queued = [each for clients in lines for line in clients.values() for each in line]
            assert self.batcher.queue.rows == sum(each.rows_left for each in queued)
            assert len(set(queued)) == len(queued)
            waits = {each for each in self.open if each.rows_left}
            assert waits <= set(queued) <= waits | self.cancelled
            assert self.batcher.busy or self.batcher.timer or not queued

    @invariant()
    def answers_are_the_callers_own(self):
        for waiting in getattr(self, "requests", []):
            self.check(waiting)

    def check(self, waiting):
        """What is known of one request now."""
        task = waiting.task
        assert max(Counter(task.computed).values(), default=1) == 1
        assert task.computed == list(range(len(task.computed)))
        if waiting in self.dropped:
            assert len(task.computed) <= self.dropped[waiting]
        if not waiting.future.done():
            return
        found = outcome(waiting.future)
        if waiting in self.errors:
            assert found is self.errors[waiting] or isinstance(found, self.errors[waiting])
        elif waiting in self.cancelled:
            assert found is asyncio.CancelledError
        elif task.fails is not None:
            assert isinstance(found, BadInput)
            assert str(found) == f"{task.numbers[0]} fails"
        else:
            assert found == task.expected

    def teardown(self):
        if hasattr(self, "pool"):
            while self.batcher.busy or self.batcher.queue.rows:
                self.run()
            assert not self.open
            self.answers_are_the_callers_own()
            self.loop.close()


TestGathering = Gathering.TestCase
