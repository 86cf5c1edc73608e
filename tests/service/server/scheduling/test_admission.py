"""What is held: rows, bytes and expected seconds, one rule for one row and for many."""

from __future__ import annotations

import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.errors import Overloaded, TimedOut
from shortlist.server.scheduling import admission
from shortlist.server.scheduling.admission import DRAIN_WINDOW_SECONDS, MAX_RETRY_AFTER_SECONDS, Admission

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
    held.take_rows(100 - rows, AGES)
    held.take_rows(rows, AGES)
    refused(held.take_rows, 1, AGES)
    refused(held.take_rows, rows, AGES)
    refused(held.take_bytes, 1)  # before its body is read
    held.release_rows(1)
    held.take_bytes(1)
    held.take_rows(1, AGES)
    assert (held.rows, held.bytes) == (100, 1)


def test_bytes_over_the_limit_are_refused():
    held = Admission(100, 1000)
    held.take_bytes(600)
    held.take_bytes(400)
    refused(held.take_bytes, 1)
    held.release_bytes(600)
    held.take_bytes(600)
    assert held.bytes == 1000


def test_a_lone_request_is_always_taken():
    held = Admission(10, 1000)
    held.note_batch(1, 3600.0)
    held.take_bytes(5000)
    held.take_rows(500, 1e-3)
    refused(held.take_bytes, 1)
    refused(held.take_rows, 1, AGES)
    held.release_bytes(5000)
    held.release_rows(500)
    assert (held.rows, held.bytes) == (0, 0)
    held.take_bytes(5000)


def test_a_refused_request_holds_nothing():
    held = Admission(10, 10)
    held.take_bytes(10)
    held.take_rows(10, AGES)
    refused(held.take_bytes, 1)
    refused(held.take_rows, 1, AGES)
    assert (held.rows, held.bytes) == (10, 10)


def test_a_request_that_would_wait_for_too_much_of_its_time_is_refused():
    held = Admission(10_000, 1000)
    held.take_rows(100, AGES)
    held.note_batch(10, 1.0)  # 0.1 s a row, so that 100 take 10 s
    assert held.estimate_wait() == pytest.approx(10)
    refused(held.take_rows, 1, 19)
    refused(held.take_rows, 50, 19)
    held.take_rows(1, 21)
    assert refused(held.take_rows, 1, 1).retry_after == 11


def test_retry_after_comes_from_the_measured_rate(clock):
    held = Admission(100, 1000)
    held.take_rows(100, AGES)
    assert refused(held.take_rows, 1, AGES).retry_after == 1  # nothing was measured yet
    for _ in range(10):
        clock.go(1.0)
        held.note_batch(2, 0.01)  # computed in no time, but no more than two a second leave
    assert held.estimate_wait() == pytest.approx(50)
    assert refused(held.take_rows, 1, AGES).retry_after == 50
    assert refused(held.take_bytes, 1).retry_after == 50
    held.release_rows(90)
    assert held.estimate_wait() == pytest.approx(5)


def test_retry_after_is_never_under_a_second_nor_over_a_minute(clock):
    held = Admission(1, 1000)
    held.take_rows(1, AGES)
    clock.go(1.0)
    held.note_batch(10_000, 0.001)
    assert refused(held.take_rows, 1, AGES).retry_after == 1
    for _ in range(20):
        clock.go(3600.0)
        held.note_batch(1, 3600.0)
    assert refused(held.take_rows, 1, AGES).retry_after == MAX_RETRY_AFTER_SECONDS


def test_a_machine_that_was_paused_once_refuses_nobody(clock):
    held = Admission(100, 1000)
    held.take_rows(16, AGES)
    for _ in range(10):
        clock.go(DRAIN_WINDOW_SECONDS)
        held.note_batch(16 * 50, DRAIN_WINDOW_SECONDS)
    before = held.estimate_wait()
    clock.go(120.0)
    held.note_batch(16, 120.0)
    assert before < held.estimate_wait() < 10 * before
    held.take_rows(16, 1.0)


def test_lasting_slowness_is_believed_within_a_few_batches(clock):
    held = Admission(100, 1000)
    held.take_rows(16, AGES)
    for seconds in [DRAIN_WINDOW_SECONDS] * 10 + [25.0] * 5:
        clock.go(seconds)
        held.note_batch(16, seconds)
    assert held.estimate_wait() > 20
    refused(held.take_rows, 1, 30)


def test_idle_time_does_not_count_as_slowness(clock):
    held = Admission(100, 1000)
    held.take_rows(10, AGES)
    clock.go(1.0)
    held.note_batch(10, 0.01)
    held.release_rows(10)
    clock.go(3600.0)
    held.take_rows(100, AGES)
    assert held.estimate_wait() == pytest.approx(0.1)


def test_a_slow_start_is_forgotten_as_rows_get_faster(clock):
    held = Admission(100, 1000)
    held.take_rows(100, AGES)
    held.note_batch(1, 1.0)
    for _ in range(100):
        clock.go(DRAIN_WINDOW_SECONDS)
        held.note_batch(1000, 0.1)
    assert held.estimate_wait() == pytest.approx(100 * DRAIN_WINDOW_SECONDS / 1000)


def test_requests_without_rows_do_not_upset_the_measuring(clock):
    held = Admission(100, 1000)
    held.take_rows(100, AGES)
    clock.go(2 * DRAIN_WINDOW_SECONDS)
    held.note_batch(0, 1e-6)
    assert math.isfinite(held.estimate_wait())
    refused(held.take_rows, 1, AGES)
    held.release_rows(50)
    held.take_rows(1, AGES)


CALLS = st.tuples(
    st.sampled_from(["take_bytes", "take_rows", "note_batch", "release"]),
    st.integers(0, 60),
    st.floats(0, 2),
    st.floats(0.01, 100),
)


@given(st.lists(CALLS, max_size=60), st.integers(1, 100), st.integers(1, 100))
def test_what_is_held_is_what_came_and_did_not_leave(calls, most_rows, most_bytes):
    held, inside, refusals = Admission(most_rows, most_bytes), [], []
    for kind, count, seconds, limit in calls:
        bytes_, rows = sum(each[0] for each in inside), sum(each[1] for each in inside)
        try:
            if kind == "take_bytes":
                held.take_bytes(count)
                inside.append((count, 0))
                assert not bytes_ or bytes_ + count <= most_bytes
            elif kind == "take_rows":
                held.take_rows(count, limit)
                inside.append((0, count))
                assert not rows or rows + count <= most_rows
            elif kind == "note_batch":
                held.note_batch(count, seconds)
            elif inside:
                bytes_, rows = inside.pop(count % len(inside))
                held.release_bytes(bytes_)
                held.release_rows(rows)
        except Overloaded as error:
            refusals.append((error.retry_after, rows + bytes_))
        assert held.bytes == sum(each[0] for each in inside)
        assert held.rows == sum(each[1] for each in inside)
        assert held.estimate_wait() >= 0
    assert all(1 <= seconds <= MAX_RETRY_AFTER_SECONDS and something for seconds, something in refusals)


def pair():
    """The admissions of a server, and of one of its models."""
    server = Admission(100, 1000)
    return server, Admission(100, 1000, server)


def test_what_a_model_holds_its_server_holds_too():
    server, model = pair()
    model.take_bytes(600)
    model.take_rows(7, AGES)
    model.add_bytes(300)
    assert (server.rows, server.bytes) == (model.rows, model.bytes) == (7, 900)
    other = Admission(100, 1000, server)
    refused(other.take_bytes, 200)  # there is no room in the server
    assert (server.bytes, other.bytes) == (900, 0)
    model.release_bytes(900)
    model.release_rows(7)
    assert (server.rows, server.bytes) == (model.rows, model.bytes) == (0, 0)


def test_a_hold_gives_back_all_that_it_took_whatever_happens():
    server, model = pair()
    with contextlib.suppress(ZeroDivisionError), server.hold() as hold:
        hold.take_bytes(300)
        hold.take_bytes(200)
        hold.take_rows(model, 7, AGES)
        assert (server.rows, server.bytes, model.rows) == (7, 500, 7)
        raise ZeroDivisionError
    assert (server.rows, server.bytes, model.rows, model.bytes) == (0, 0, 0, 0)


def test_a_response_is_held_in_place_of_the_rows():
    server, model = pair()
    with server.hold() as hold:
        hold.take_bytes(900)
        hold.take_rows(model, 7, AGES)
        hold.keep_response(400)  # never refused
        assert (server.rows, server.bytes, model.rows) == (0, 1300, 0)
    assert (server.rows, server.bytes, model.rows) == (0, 0, 0)


def test_a_hold_whose_rows_the_model_refuses_holds_none_in_the_server():
    server, model = pair()
    with server.hold() as first, server.hold() as second:
        first.take_rows(model, 90, AGES)
        model.note_batch(1, 1.0)
        refused(second.take_rows, model, 5, 10.0)  # 90 s to wait
        assert (server.rows, model.rows) == (90, 90)
        other = Admission(100, 1000, server)
        second.take_rows(other, 5, 10.0)  # another model of the server has nothing to wait for
    assert (server.rows, model.rows, other.rows) == (0, 0, 0)


def test_bytes_of_one_request_do_not_refuse_its_own():
    server, _ = pair()
    with server.hold() as hold:
        hold.take_bytes(900)
        hold.take_bytes(900)
        with server.hold() as other:
            refused(other.check_bytes, 1)


def test_a_request_without_time_is_refused_first():
    _, model = pair()
    model.take_rows(100, AGES)
    with pytest.raises(TimedOut):
        model.check_rows(1, -1e-9)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4), st.integers(0, 60), st.floats(0, 2),
    st.integers(0, 120), st.floats(-1, 100),
)  # fmt: skip
def test_the_inline_check_equals_taking_and_releasing(held, computed, seconds, rows, limit):
    outcomes = []
    for inline in (True, False):
        server, model = pair()
        other = Admission(100, 1000, server)
        for count, same in held:
            (model if same else other).take_rows(count, AGES) if server.rows + count <= 100 else None
        model.note_batch(computed, seconds)
        try:
            if inline:
                model.check_rows(rows, limit)
            else:
                with server.hold() as hold:
                    hold.take_rows(model, rows, limit)
            outcome = None
        except (Overloaded, TimedOut) as error:
            outcome = type(error), str(error)
        outcomes.append((outcome, server.rows, model.rows, other.rows, model.row_seconds, server.row_seconds))
    assert outcomes[0] == outcomes[1]
