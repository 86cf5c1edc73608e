"""The queue: nothing lost or given twice, in the order of priority, then in turns."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shortlist.server.scheduling.fair_queue import TURN_ROWS, FairQueue, QueuedTask

CLIENTS = ("a", "b", "c")


class Rows:
    """Work of which only its rows matter to a queue."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


@pytest.fixture
def line():
    """Makes requests; their futures belong to a loop that never runs."""
    loop = asyncio.new_event_loop()
    yield lambda rows, client="a", priority=0: QueuedTask(Rows(rows), loop.create_future(), client, priority)
    loop.close()


def queue_of(*entry):
    queue = FairQueue()
    for each in entry:
        queue.push(each)
    return queue


def take_all(queue, rows=1):
    """The requests in the order in which their rows are given out."""
    while pieces := queue.take(rows):
        for entry, piece in pieces.items():
            yield from [entry] * (piece.stop - piece.start)


def test_a_single_row_waits_for_one_turn_of_anothers_large_request(line):
    large, small = line(1000, "a"), line(1, "b")
    order = list(take_all(queue_of(large, small)))
    assert order.index(small) <= TURN_ROWS
    assert Counter(order) == {large: 1000, small: 1}


def test_a_clients_own_requests_take_turns_too(line):
    large, small = line(1000), line(1)
    assert list(take_all(queue_of(large, small), rows=16)).index(small) <= TURN_ROWS


def test_many_requests_of_one_client_do_not_crowd_out_another(line):
    crowd, single = [line(4, "a") for _ in range(100)], line(4, "b")
    order = list(take_all(queue_of(*crowd, single), rows=8))
    assert order.index(single) <= TURN_ROWS


def test_a_large_request_gets_its_share_beside_many_small_ones(line):
    large, small = line(64, "a"), [line(1, "b") for _ in range(100)]
    order = list(take_all(queue_of(*small, large), rows=64))
    assert len([each for each in order[:70] if each is large]) == 64


def test_lower_priority_values_go_first(line):
    entry = [line(20, "a", 2), line(20, "b", 0), line(20, "a", 1)]
    assert [each.priority for each in take_all(queue_of(*entry), rows=7)] == [0] * 20 + [1] * 20 + [2] * 20


def test_a_request_that_leaves_takes_its_rows_with_it(line):
    large, small = line(100, "a"), line(5, "b")
    queue = queue_of(large, small)
    queue.take(20)
    queue.remove(large)
    queue.remove(large)
    assert queue.rows == small.rows_left == 1
    assert set(take_all(queue, 64)) == {small}
    queue.remove(small)
    assert (queue.rows, queue.levels) == (0, {})


class Turns(RuleBasedStateMachine):
    """Pushes, removals and takes in any order, against what must hold of every take."""

    @initialize()
    def begin(self):
        self.loop = asyncio.new_event_loop()
        self.queue = FairQueue()
        self.live: list[QueuedTask] = []
        self.next_row: dict[QueuedTask, int] = {}
        self.ahead: dict[QueuedTask, tuple[int, int]] = {}  # rows of its priority given since it came, and the most

    @rule(rows=st.integers(1, 100), client=st.sampled_from(CLIENTS), priority=st.integers(0, 2))
    def push(self, rows, client, priority):
        entry = QueuedTask(Rows(rows), self.loop.create_future(), client, priority)
        before = sum((each.client, each.priority) == (client, priority) for each in self.live)
        self.queue.push(entry)
        self.live.append(entry)
        self.next_row[entry] = 0
        self.ahead[entry] = 0, (before + 1) * len(CLIENTS) * TURN_ROWS

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def remove(self, data):
        entry = data.draw(st.sampled_from(self.live))
        self.queue.remove(entry)
        self.live.remove(entry)

    @rule(rows=st.integers(1, 150))
    def take(self, rows):
        waiting_rows = sum(each.task.rows - self.next_row[each] for each in self.live)
        pieces = self.queue.take(rows)
        assert sum(piece.stop - piece.start for piece in pieces.values()) == min(rows, waiting_rows)
        rows_by_priority: Counter[int] = Counter()
        for entry, piece in pieces.items():
            assert entry in self.live
            assert piece.task is entry.task
            assert piece.start == self.next_row[entry]
            assert piece.start < piece.stop <= entry.task.rows
            self.next_row[entry] = piece.stop
            rows_by_priority[entry.priority] += piece.stop - piece.start
        self.live = [each for each in self.live if self.next_row[each] < each.task.rows]
        if pieces and self.live:
            assert max(rows_by_priority) <= min(each.priority for each in self.live)
        self.check_turns(pieces, rows_by_priority)

    def check_turns(self, pieces, rows_by_priority):
        for entry in self.live:
            if not self.next_row[entry]:
                rows, most = self.ahead[entry]
                self.ahead[entry] = rows + rows_by_priority[entry.priority], most
                assert rows + rows_by_priority[entry.priority] <= most
        by_client = Counter()
        for entry, piece in pieces.items():
            by_client[entry.priority, entry.client] += piece.stop - piece.start
        for entry in self.live:  # their clients had rows throughout, so that they had as many turns, but for one
            rows_of_client = by_client[entry.priority, entry.client]
            others = [by_client[entry.priority, client] for client in CLIENTS]
            assert max(others) <= (rows_of_client + 1) * TURN_ROWS

    @invariant()
    def rows_are_those_that_wait(self):
        if hasattr(self, "queue"):
            assert self.queue.rows == sum(each.rows_left for each in self.live)
            assert all(each.rows_left == each.task.rows - self.next_row[each] for each in self.live)
            assert bool(self.queue.levels) == bool(self.live)

    def teardown(self):
        if hasattr(self, "queue"):
            while self.live:
                self.take(64)
            assert self.queue.rows == 0
            self.loop.close()


TestTurns = Turns.TestCase


def test_a_batch_ends_with_the_row_that_exhausts_its_seconds(line):
    dear, cheap = line(100, "a"), line(1, "b")
    seconds = {dear.task: 0.02, cheap.task: 0.001}
    queue = queue_of(dear)
    first = queue.take(64, 0.05, seconds.__getitem__)
    assert [piece.stop for piece in first.values()] == [3]
    queue.push(cheap)
    assert [piece.rows for piece in queue.take(64, 0.05, seconds.__getitem__).values()] == [3]
    third = queue.take(64, 0.05, seconds.__getitem__)
    assert [piece.rows for piece in third.values()] == [1, 3]
    assert cheap in third
    assert [piece.rows for piece in queue.take(64, 0.001, seconds.__getitem__).values()] == [1]
    assert queue.rows == 100 - 10
