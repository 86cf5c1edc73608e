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

    fake_clock = Clock()
    monkeypatch.setattr(admission, "time", fake_clock)
    return fake_clock


def expect_refusal(action, *arguments):
    with pytest.raises(Overloaded) as excinfo:
        action(*arguments)
    assert excinfo.value.status == 429
    assert f"try again in {excinfo.value.retry_after} s" in str(excinfo.value)
    return excinfo.value


@pytest.mark.parametrize("rows", [1, 11, 100])
def test_rows_over_the_limit_are_refused_one_or_many(rows):
    admission = Admission(100, 1000)
    admission.take_rows(100 - rows, AGES)
    admission.take_rows(rows, AGES)
    expect_refusal(admission.take_rows, 1, AGES)
    expect_refusal(admission.take_rows, rows, AGES)
    expect_refusal(admission.take_bytes, 1)  # before its body is read
    admission.release_rows(1)
    admission.take_bytes(1)
    admission.take_rows(1, AGES)
    assert (admission.rows, admission.bytes) == (100, 1)


def test_bytes_over_the_limit_are_refused():
    admission = Admission(100, 1000)
    admission.take_bytes(600)
    admission.take_bytes(400)
    expect_refusal(admission.take_bytes, 1)
    admission.release_bytes(600)
    admission.take_bytes(600)
    assert admission.bytes == 1000


def test_a_lone_request_is_always_taken():
    admission = Admission(10, 1000)
    admission.note_batch(1, 3600.0)
    admission.take_bytes(5000)
    admission.take_rows(500, 1e-3)
    expect_refusal(admission.take_bytes, 1)
    expect_refusal(admission.take_rows, 1, AGES)
    admission.release_bytes(5000)
    admission.release_rows(500)
    assert (admission.rows, admission.bytes) == (0, 0)
    admission.take_bytes(5000)


def test_a_refused_request_holds_nothing():
    admission = Admission(10, 10)
    admission.take_bytes(10)
    admission.take_rows(10, AGES)
    expect_refusal(admission.take_bytes, 1)
    expect_refusal(admission.take_rows, 1, AGES)
    assert (admission.rows, admission.bytes) == (10, 10)


def test_a_request_that_would_wait_for_too_much_of_its_time_is_refused():
    admission = Admission(10_000, 1000)
    admission.take_rows(100, AGES)
    admission.note_batch(10, 1.0)  # 0.1 s a row, so that 100 take 10 s
    assert admission.estimate_wait() == pytest.approx(10)
    expect_refusal(admission.take_rows, 1, 19)
    expect_refusal(admission.take_rows, 50, 19)
    admission.take_rows(1, 21)
    assert expect_refusal(admission.take_rows, 1, 1).retry_after == 11


def test_retry_after_comes_from_the_measured_rate(clock):
    admission = Admission(100, 1000)
    admission.take_rows(100, AGES)
    assert expect_refusal(admission.take_rows, 1, AGES).retry_after == 1  # nothing was measured yet
    for _ in range(10):
        clock.go(1.0)
        admission.note_batch(2, 0.01)  # computed in no time, but no more than two a second leave
    assert admission.estimate_wait() == pytest.approx(50)
    assert expect_refusal(admission.take_rows, 1, AGES).retry_after == 50
    assert expect_refusal(admission.take_bytes, 1).retry_after == 50
    admission.release_rows(90)
    assert admission.estimate_wait() == pytest.approx(5)


def test_retry_after_is_never_under_a_second_nor_over_a_minute(clock):
    admission = Admission(1, 1000)
    admission.take_rows(1, AGES)
    clock.go(1.0)
    admission.note_batch(10_000, 0.001)
    assert expect_refusal(admission.take_rows, 1, AGES).retry_after == 1
    for _ in range(20):
        clock.go(3600.0)
        admission.note_batch(1, 3600.0)
    assert expect_refusal(admission.take_rows, 1, AGES).retry_after == MAX_RETRY_AFTER_SECONDS


def test_a_machine_that_was_paused_once_refuses_nobody(clock):
    admission = Admission(100, 1000)
    admission.take_rows(16, AGES)
    for _ in range(10):
        clock.go(DRAIN_WINDOW_SECONDS)
        admission.note_batch(16 * 50, DRAIN_WINDOW_SECONDS)
    before = admission.estimate_wait()
    clock.go(120.0)
    admission.note_batch(16, 120.0)
    assert before < admission.estimate_wait() < 10 * before
    admission.take_rows(16, 1.0)


def test_lasting_slowness_is_believed_within_a_few_batches(clock):
    admission = Admission(100, 1000)
    admission.take_rows(16, AGES)
    for seconds in [DRAIN_WINDOW_SECONDS] * 10 + [25.0] * 5:
        clock.go(seconds)
        admission.note_batch(16, seconds)
    assert admission.estimate_wait() > 20
    expect_refusal(admission.take_rows, 1, 30)


def test_idle_time_does_not_count_as_slowness(clock):
    admission = Admission(100, 1000)
    admission.take_rows(10, AGES)
    clock.go(1.0)
    admission.note_batch(10, 0.01)
    admission.release_rows(10)
    clock.go(3600.0)
    admission.take_rows(100, AGES)
    assert admission.estimate_wait() == pytest.approx(0.1)


def test_a_slow_start_is_forgotten_as_rows_get_faster(clock):
    admission = Admission(100, 1000)
    admission.take_rows(100, AGES)
    admission.note_batch(1, 1.0)
    for _ in range(100):
        clock.go(DRAIN_WINDOW_SECONDS)
        admission.note_batch(1000, 0.1)
    assert admission.estimate_wait() == pytest.approx(100 * DRAIN_WINDOW_SECONDS / 1000)


def test_requests_without_rows_do_not_upset_the_measuring(clock):
    admission = Admission(100, 1000)
    admission.take_rows(100, AGES)
    clock.go(2 * DRAIN_WINDOW_SECONDS)
    admission.note_batch(0, 1e-6)
    assert math.isfinite(admission.estimate_wait())
    expect_refusal(admission.take_rows, 1, AGES)
    admission.release_rows(50)
    admission.take_rows(1, AGES)


CALLS = st.tuples(
    st.sampled_from(["take_bytes", "take_rows", "note_batch", "release"]),
    st.integers(0, 60),
    st.floats(0, 2),
    st.floats(0.01, 100),
)


@given(st.lists(CALLS, max_size=60), st.integers(1, 100), st.integers(1, 100))
def test_what_is_held_is_what_came_and_did_not_leave(calls, most_rows, most_bytes):
    admission, inside, refusals = Admission(most_rows, most_bytes), [], []
    for kind, count, seconds, limit in calls:
        bytes_, rows = sum(each[0] for each in inside), sum(each[1] for each in inside)
        try:
            if kind == "take_bytes":
                admission.take_bytes(count)
                inside.append((count, 0))
                assert not bytes_ or bytes_ + count <= most_bytes
            elif kind == "take_rows":
                admission.take_rows(count, limit)
                inside.append((0, count))
                assert not rows or rows + count <= most_rows
            elif kind == "note_batch":
                admission.note_batch(count, seconds)
            elif inside:
                bytes_, rows = inside.pop(count % len(inside))
                admission.release_bytes(bytes_)
                admission.release_rows(rows)
        except Overloaded as error:
            refusals.append((error.retry_after, rows + bytes_))
        assert admission.bytes == sum(each[0] for each in inside)
        assert admission.rows == sum(each[1] for each in inside)
        assert admission.estimate_wait() >= 0
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
    expect_refusal(other.take_bytes, 200)  # there is no room in the server
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
        expect_refusal(second.take_rows, model, 5, 10.0)  # 90 s to wait
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
            expect_refusal(other.check_bytes, 1)


def test_a_request_without_time_is_refused_first():
    _, model = pair()
    model.take_rows(100, AGES)
    with pytest.raises(TimedOut):
        model.check_rows(1, -1e-9)


@given(
    st.lists(st.tuples(st.integers(1, 60), st.booleans()), max_size=4), st.integers(0, 60), st.floats(0, 2),
    st.integers(0, 120), st.floats(-1, 100),
)  # fmt: skip
def test_the_inline_check_equals_taking_and_releasing(held_rows, batch_rows, seconds, rows, limit):
    outcomes = []
    for inline in (True, False):
        server, model = pair()
        other = Admission(100, 1000, server)
        for count, same in held_rows:
            (model if same else other).take_rows(count, AGES) if server.rows + count <= 100 else None
        model.note_batch(batch_rows, seconds)
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
