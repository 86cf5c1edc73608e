"""What is held: rows, bytes and expected seconds, one rule for one row and for many."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import Overloaded
from shortlist.server.scheduling import admission
from shortlist.server.scheduling.admission import LONGEST, WINDOW, Admission

AGES = 1e6  # seconds: nobody minds waiting


@pytest.fixture
def clock(monkeypatch):
    """The module's clock; the test moves it."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

        def go(self, seconds):
            self.now += seconds

    made = Clock()
    monkeypatch.setattr(admission, "time", made)
    return made


def refused(action, *arguments):
    with pytest.raises(Overloaded) as caught:
        action(*arguments)
    assert caught.value.status == 429
    assert f"try again in {caught.value.retry_after} s" in str(caught.value)
    return caught.value


@pytest.mark.parametrize("rows", [1, 11, 100])
def test_rows_over_the_limit_are_refused_one_or_many(rows):
    held = Admission(100, 1000)
    held.hold(100 - rows, AGES)
    held.hold(rows, AGES)
    refused(held.hold, 1, AGES)
    refused(held.hold, rows, AGES)
    refused(held.enter, 1)  # before its body is read
    held.leave(0, 1)
    held.enter(1)
    held.hold(1, AGES)
    assert (held.rows, held.bytes) == (100, 1)


def test_bytes_over_the_limit_are_refused():
    held = Admission(100, 1000)
    held.enter(600)
    held.enter(400)
    refused(held.enter, 1)
    held.leave(600, 0)
    held.enter(600)
    assert held.bytes == 1000


def test_a_lone_request_is_always_taken():
    held = Admission(10, 1000)
    held.answered(1, 3600.0)
    held.enter(5000)
    held.hold(500, 1e-3)
    refused(held.enter, 1)
    refused(held.hold, 1, AGES)
    held.leave(5000, 500)
    assert (held.rows, held.bytes) == (0, 0)
    held.enter(5000)


def test_a_refused_request_holds_nothing():
    held = Admission(10, 10)
    held.enter(10)
    held.hold(10, AGES)
    refused(held.enter, 1)
    refused(held.hold, 1, AGES)
    assert (held.rows, held.bytes) == (10, 10)


def test_a_request_that_would_wait_for_too_much_of_its_time_is_refused():
    held = Admission(10_000, 1000)
    held.hold(100, AGES)
    held.answered(10, 1.0)  # 0.1 s a row, so that 100 take 10 s
    assert held.wait() == pytest.approx(10)
    refused(held.hold, 1, 19)
    refused(held.hold, 50, 19)
    held.hold(1, 21)
    assert refused(held.hold, 1, 1).retry_after == 11


def test_retry_after_comes_from_the_measured_rate(clock):
    held = Admission(100, 1000)
    held.hold(100, AGES)
    assert refused(held.hold, 1, AGES).retry_after == 1  # nothing was measured yet
    for _ in range(10):
        clock.go(1.0)
        held.answered(2, 0.01)  # computed in no time, but no more than two a second leave
    assert held.wait() == pytest.approx(50)
    assert refused(held.hold, 1, AGES).retry_after == 50
    assert refused(held.enter, 1).retry_after == 50
    held.leave(0, 90)
    assert held.wait() == pytest.approx(5)


def test_retry_after_is_never_under_a_second_nor_over_a_minute(clock):
    held = Admission(1, 1000)
    held.hold(1, AGES)
    clock.go(1.0)
    held.answered(10_000, 0.001)
    assert refused(held.hold, 1, AGES).retry_after == 1
    for _ in range(20):
        clock.go(3600.0)
        held.answered(1, 3600.0)
    assert refused(held.hold, 1, AGES).retry_after == LONGEST


def test_a_machine_that_was_paused_once_refuses_nobody(clock):
    held = Admission(100, 1000)
    held.hold(16, AGES)
    for _ in range(10):
        clock.go(WINDOW)
        held.answered(16 * 50, WINDOW)
    before = held.wait()
    clock.go(120.0)
    held.answered(16, 120.0)
    assert before < held.wait() < 10 * before
    held.hold(16, 1.0)


def test_lasting_slowness_is_believed_within_a_few_batches(clock):
    held = Admission(100, 1000)
    held.hold(16, AGES)
    for seconds in [WINDOW] * 10 + [25.0] * 5:
        clock.go(seconds)
        held.answered(16, seconds)
    assert held.wait() > 20
    refused(held.hold, 1, 30)


def test_idle_time_does_not_count_as_slowness(clock):
    held = Admission(100, 1000)
    held.hold(10, AGES)
    clock.go(1.0)
    held.answered(10, 0.01)
    held.leave(0, 10)
    clock.go(3600.0)
    held.hold(100, AGES)
    assert held.wait() == pytest.approx(0.1)


def test_a_slow_start_is_forgotten_as_rows_get_faster(clock):
    held = Admission(100, 1000)
    held.hold(100, AGES)
    held.answered(1, 1.0)
    for _ in range(100):
        clock.go(WINDOW)
        held.answered(1000, 0.1)
    assert held.wait() == pytest.approx(100 * WINDOW / 1000)


def test_requests_without_rows_do_not_upset_the_measuring(clock):
    held = Admission(100, 1000)
    held.hold(100, AGES)
    clock.go(2 * WINDOW)
    held.answered(0, 1e-6)
    assert math.isfinite(held.wait())
    refused(held.hold, 1, AGES)
    held.leave(0, 50)
    held.hold(1, AGES)


CALLS = st.tuples(
    st.sampled_from(["enter", "hold", "answered", "leave"]), st.integers(0, 60), st.floats(0, 2), st.floats(0.01, 100)
)


@given(st.lists(CALLS, max_size=60), st.integers(1, 100), st.integers(1, 100))
def test_what_is_held_is_what_came_and_did_not_leave(calls, most_rows, most_bytes):
    held, inside, refusals = Admission(most_rows, most_bytes), [], []
    for kind, count, seconds, limit in calls:
        bytes_, rows = sum(each[0] for each in inside), sum(each[1] for each in inside)
        try:
            if kind == "enter":
                held.enter(count)
                inside.append((count, 0))
                assert not bytes_ or bytes_ + count <= most_bytes
            elif kind == "hold":
                held.hold(count, limit)
                inside.append((0, count))
                assert not rows or rows + count <= most_rows
            elif kind == "answered":
                held.answered(count, seconds)
            elif inside:
                held.leave(*inside.pop(count % len(inside)))
        except Overloaded as error:
            refusals.append((error.retry_after, rows + bytes_))
        assert held.bytes == sum(each[0] for each in inside)
        assert held.rows == sum(each[1] for each in inside)
        assert held.wait() >= 0
    assert all(1 <= seconds <= LONGEST and something for seconds, something in refusals)
