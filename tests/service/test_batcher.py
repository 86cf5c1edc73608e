"""The batcher: every row answered once, to its caller, and as if it were alone."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shortlist.batcher import Batcher
from shortlist.errors import BadInput, TimedOut
from shortlist.queries import ScoreQuery, TopKQuery
from shortlist.turns import QUANTUM
from shortlist.work import checked_work
from shortlist_exporter.sources import Contexts

from tests.support import CLASSES, make_contexts, make_dense, make_head

CLIENTS = ("a", "b", "c")


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
    """Work whose answer is twice its numbers, which no other work has.

    fails: where it does: in a call that it shares, in one of its own, or in the end.
    """

    width = k = 0
    last = 0

    def __init__(self, rows, plan="plan", alone=False, fails=None):
        self.numbers = list(range(Doubled.last, Doubled.last + rows))
        Doubled.last += rows
        self.plan, self.alone, self.fails = plan, alone, fails
        self.computed = []
        self.calls = 0

    @property
    def rows(self):
        return len(self.numbers)

    cells = rows

    @property
    def kind(self):
        return id(self.plan), self.width, self.k.bit_length()

    def answer(self):
        return self.finish([self.expected])

    def together(self, pieces):
        assert len({piece.group for piece in pieces}) == 1
        assert len(pieces) == 1 or not self.alone
        for piece in pieces:
            if piece.work.fails == "part":
                raise BadInput(f"{piece.work.numbers[0]} fails")
        for piece in pieces:
            piece.work.calls += 1
            piece.work.computed += range(piece.start, piece.stop)
        return [[2 * number for number in piece.work.numbers[piece.start : piece.stop]] for piece in pieces]

    def finish(self, parts):
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


def test_an_idle_model_starts_at_once_and_gathers_what_comes_meanwhile():
    async def scenario():
        pool, sizes = Stepped(), []
        batcher = Batcher(pool, 64, notify=lambda rows, requests, seconds: sizes.append((rows, requests)))
        works = [Doubled(1) for _ in range(10)]
        waiting = [batcher.submit(work, str(i)) for i, work in enumerate(works)]
        await all_stepped(batcher)
        assert sizes == [(1, 1), (9, 9)]
        assert [outcome(each.future) for each in waiting] == [work.expected for work in works]

    asyncio.run(scenario())


def test_a_delay_waits_for_company_but_not_when_the_batch_is_full():
    async def scenario():
        pool, sizes = Stepped(), []
        batcher = Batcher(pool, 8, 3600.0, notify=lambda rows, *_: sizes.append(rows))
        first = batcher.submit(Doubled(5))
        await settled(batcher)
        assert not pool.given
        second = batcher.submit(Doubled(3))
        await all_stepped(batcher)
        assert sizes == [8]
        assert first.future.done()
        assert second.future.done()
        assert not batcher.at_once(Doubled(1))

    asyncio.run(scenario())


def test_a_delay_ends_by_itself():
    async def scenario():
        with ThreadPoolExecutor(1) as pool:
            work = Doubled(5)
            waiting = Batcher(pool, 8, 0.001).submit(work)
            assert await asyncio.wait_for(waiting.future, 30) == work.expected

    asyncio.run(scenario())


@pytest.mark.parametrize("fails", ["part", "end", "unforeseen"])
def test_one_failing_request_fails_alone(fails):
    async def scenario():
        pool = Stepped()
        batcher = Batcher(pool, 64)
        first = batcher.submit(Doubled(1))
        works = [Doubled(3), Doubled(3, fails=fails), Doubled(40), Doubled(60)]
        waiting = [batcher.submit(work) for work in works]
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await all_stepped(batcher)
        assert all(each.future.done() for each in [first, *waiting])
        found = [outcome(each.future) for each in waiting]
        assert "fails" in str(found.pop(1))
        assert found == [work.expected for work in works if work.fails is None]
        assert batcher.queue.rows == 0
        assert not batcher.busy

    asyncio.run(scenario())


def test_a_failed_part_ends_the_request_and_the_rest_of_it_is_not_computed():
    async def scenario():
        pool = Stepped()
        batcher = Batcher(pool, 16)
        work = Doubled(100, fails="part")
        waiting = batcher.submit(work)
        await all_stepped(batcher)
        assert isinstance(waiting.future.exception(), BadInput)
        assert work.computed == []
        assert batcher.queue.rows == 0

    asyncio.run(scenario())


def test_dropped_work_is_not_computed_further():
    async def scenario():
        pool = Stepped()
        batcher = Batcher(pool, 16)
        started, waits, stays = (Doubled(100) for _ in range(3))
        first, second, third = (batcher.submit(work) for work in (started, waits, stays))
        batcher.expire(first)
        batcher.drop(second)
        await all_stepped(batcher)
        assert isinstance(first.future.exception(), TimedOut)
        assert second.future.cancelled()
        assert third.future.result() == stays.expected
        assert (len(started.computed), waits.computed) == (16, [])

    asyncio.run(scenario())


def test_small_work_in_the_event_loop_leaves_no_one_behind_however_much_waits():
    async def scenario():
        pool = Stepped()
        batcher = Batcher(pool, 1, inline=3600.0)
        works = [Doubled(1) for _ in range(3000)]
        waiting = [batcher.submit(work) for work in works]  # the first goes to a thread: nothing was measured yet
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        await all_stepped(batcher)
        assert sum(each.future.done() for each in waiting) == len(works)
        assert [each.future.result() for each in waiting] == [work.expected for work in works]

    asyncio.run(scenario())


def test_small_work_is_answered_at_once_only_while_nothing_runs_or_waits():
    async def scenario():
        pool = Stepped()
        batcher = Batcher(pool, 64, inline=3600.0)
        work = Doubled(2)
        assert not batcher.at_once(work)  # nothing like it was measured
        waiting = batcher.submit(work)
        assert not batcher.at_once(work)  # busy
        await all_stepped(batcher)
        assert waiting.future.result() == work.expected
        assert batcher.at_once(work)
        assert batcher.answer_now(work) == work.expected
        assert not batcher.at_once(Doubled(2, alone=True))
        assert not batcher.at_once(Doubled(2, plan="another"))

    asyncio.run(scenario())


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
        self.batcher = Batcher(self.pool, rows, delay, inline, lambda *batch: self.batches.append(batch))
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
        alone=st.sampled_from([False, False, True]),
        fails=st.sampled_from([None] * 6 + ["part", "end"]),
    )
    def submit(self, rows, client, priority, plan, alone, fails):
        work = Doubled(rows, plan, alone, fails)
        self.requests.append(self.do(lambda: self.batcher.submit(work, client, priority)))

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
        self.dropped[waiting] = waiting.taken
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
            self.do(self.batcher.start)
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
            assert self.batcher.queue.rows == sum(each.left for each in queued)
            assert len(set(queued)) == len(queued)
            waits = {each for each in self.open if each.left}
            assert waits <= set(queued) <= waits | self.cancelled
            assert self.batcher.busy or self.batcher.timer or not queued

    @invariant()
    def answers_are_the_callers_own(self):
        for waiting in getattr(self, "requests", []):
            self.check(waiting)

    def check(self, waiting):
        """What is known of one request now."""
        work = waiting.work
        assert max(Counter(work.computed).values(), default=1) == 1
        assert work.computed == list(range(len(work.computed)))
        if waiting in self.dropped:
            assert len(work.computed) <= self.dropped[waiting]
        if not waiting.future.done():
            return
        found = outcome(waiting.future)
        if waiting in self.errors:
            assert found is self.errors[waiting] or isinstance(found, self.errors[waiting])
        elif waiting in self.cancelled:
            assert found is asyncio.CancelledError
        elif work.fails is not None:
            assert isinstance(found, BadInput)
            assert str(found) == f"{work.numbers[0]} fails"
        else:
            assert found == work.expected

    def teardown(self):
        if hasattr(self, "pool"):
            while self.batcher.busy or self.batcher.queue.rows:
                self.run()
            assert not self.open
            self.answers_are_the_callers_own()
            self.loop.close()


TestGathering = Gathering.TestCase


def test_nobody_waits_for_the_whole_of_anothers_large_request():
    async def scenario():
        pool = Stepped()
        batcher = Batcher(pool, 2 * QUANTUM)
        large = batcher.submit(Doubled(10_000), "a")
        small = batcher.submit(Doubled(1), "b")
        own = batcher.submit(Doubled(1), "a")
        for _ in range(3):
            await settled(batcher)
            pool.step()
        await settled(batcher)
        assert small.future.done()
        assert own.future.done()
        assert large.taken < 200

    asyncio.run(scenario())


SCREEN = {"clusters": "6", "budget": "40", "rounds": "1", "epochs": "1"}
SECOND = {"second_stage": "int8", "width": "12", "full_view": "30"}
HEADS = {
    "full": ("full", {}),
    "preview": ("svd", {"basis": "context", "width": "8", "full_view": "40"}),
    "screen": ("l2s", SCREEN),
    "screen, two probes": ("l2s", SCREEN | {"probes": "2"}),
    "screen, second stage": ("l2s", SCREEN | SECOND),
    "screen, second stage, two probes": ("l2s", SCREEN | SECOND | {"probes": "2"}),
    "screen, fall-back": ("l2s", SCREEN | {"fallback": "0.3"}),
    "screen, second probe": ("l2s", SCREEN | {"second_probe": "0.3"}),
    "screen, low-rank tail": ("l2s", SCREEN | {"tail_rank": "3"}),
}
SAMPLE = Contexts(make_contexts(600).contexts / 4)  # so that float32 holds their logits to 1e-6
ROWS = SAMPLE.contexts[-100:]


@pytest.fixture(scope="module", params=HEADS)
def head(request, tmp_path_factory):
    method, options = HEADS[request.param]
    return make_head(tmp_path_factory.mktemp("head"), make_dense(), SAMPLE, method=method, options=options)


IDS = st.lists(st.integers(0, CLASSES - 1), min_size=1, max_size=20, unique=True)
TOPK = st.builds(
    lambda start, rows, k, allow, ban, exact: TopKQuery(ROWS[start : start + rows], k, allow, ban, exact),
    st.integers(0, 99),
    st.integers(1, 24),
    st.one_of(st.integers(1, 12), st.integers(1, CLASSES)),
    st.none() | IDS.map(np.array),
    st.none() | IDS.map(np.array),
    st.booleans(),
)
PLAIN = st.builds(lambda start, rows, k: TopKQuery(ROWS[start : start + rows], k),
                  st.integers(0, 99), st.integers(1, 24), st.integers(1, 30))  # fmt: skip
SCORE = st.builds(lambda start, rows, ids: ScoreQuery(ROWS[start : start + rows], np.array(ids)),
                  st.integers(0, 99), st.integers(1, 24), IDS)  # fmt: skip


def gathered(works, batch_rows):
    """Answers of works that are computed together, as far as they may be."""

    async def scenario():
        pool = Stepped()
        batcher = Batcher(pool, batch_rows)
        first = batcher.submit(works[0])  # starts a batch: the others gather behind it
        waiting = [batcher.submit(work) for work in works[1:]]
        await all_stepped(batcher)
        return [each.future.result() for each in (first, *waiting)]

    return asyncio.run(scenario())


@settings(max_examples=15)
@given(
    queries=st.lists(PLAIN | PLAIN | TOPK | SCORE, min_size=2, max_size=6), batch_rows=st.sampled_from([1, 16, 64, 200])
)
def test_a_rows_answer_is_the_same_alone_and_gathered(head, queries, batch_rows):
    works = [checked_work(head, query) for query in queries]
    for query, work, found in zip(queries, works, gathered(works, batch_rows), strict=True):
        assert len(found.logprobs) == len(query.contexts)
        whole = work.answer()
        assert found.normalizer == whole.normalizer
        np.testing.assert_array_equal(found.ids, whole.ids)
        np.testing.assert_allclose(found.logprobs, whole.logprobs, atol=1e-5, rtol=1e-6)
        if isinstance(query, TopKQuery):
            np.testing.assert_array_equal(found.scored, whole.scored)
            for row in range(work.rows):
                check_row(head, work, row, found)


def check_row(head, work, row, found):
    """By itself, by the same plan."""
    alone = head.run(work.plan, work.contexts[row : row + 1], work.k, work.legal.rows(row, row + 1))
    assert alone.ids[0].tolist() == found.ids[row].tolist()
    logprobs = alone.logits[0] - alone.log_normalizer[0]
    np.testing.assert_allclose(logprobs, found.logprobs[row], atol=1e-5, rtol=1e-6)


def test_different_k_share_a_call_and_get_no_more_than_they_asked_for(head):
    works = [checked_work(head, TopKQuery(ROWS[i : i + 1], k)) for i, k in enumerate((3, 1, 2, 5, 4, 10, 7))]
    for work, found in zip(works, gathered(works, 64), strict=True):
        assert found.ids.shape == (1, work.k)
        assert found.ids.tolist() == work.answer().ids.tolist()


@pytest.mark.parametrize("k", [20, 41, 60])
def test_a_k_over_a_clusters_set_is_answered_alike_alone_and_gathered(head, k):
    works = [checked_work(head, TopKQuery(ROWS[start : start + 5], k)) for start in range(0, 60, 5)]
    for work, found in zip(works, gathered(works, 64), strict=True):
        for row in range(work.rows):
            check_row(head, work, row, found)


def test_scores_that_overflow_fail_their_own_request_alone(head):
    contexts = ROWS[:3].copy()
    contexts[1] = 3e38
    works = [checked_work(head, TopKQuery(rows, 2)) for rows in (ROWS[:1], ROWS[1:3], contexts, ROWS[3:5])]

    async def scenario():
        pool = Stepped()
        batcher = Batcher(pool, 64)
        waiting = [batcher.submit(work) for work in works]
        await all_stepped(batcher)
        return [outcome(each.future) for each in waiting]

    found = asyncio.run(scenario())
    assert "row 1 is so large" in str(found[2])
    for index in (0, 1, 3):
        np.testing.assert_array_equal(found[index].ids, works[index].answer().ids)
