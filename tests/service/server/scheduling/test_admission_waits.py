"""How long what is held is expected to wait, by how fast rows were computed and left."""

from __future__ import annotations

import math

import pytest
from shortlist.server.scheduling import admission
from shortlist.server.scheduling.admission import DRAIN_WINDOW_SECONDS, MAX_RETRY_AFTER_SECONDS, Admission

from .refusals import AGES, check_refused


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


def test_a_request_that_would_wait_for_too_much_of_its_time_is_refused():
    held = Admission(10_000, 1000)
    held.take_rows(100, AGES)
    held.note_batch(10, 1.0)  # 0.1 s a row, so that 100 take 10 s
    assert held.expected_wait() == pytest.approx(10)
    check_refused(held.take_rows, 1, 19)
    check_refused(held.take_rows, 50, 19)
    held.take_rows(1, 21)
    assert check_refused(held.take_rows, 1, 1).retry_after == 11


def test_retry_after_comes_from_the_measured_rate(clock):
    held = Admission(100, 1000)
    held.take_rows(100, AGES)
    assert check_refused(held.take_rows, 1, AGES).retry_after == 1  # nothing was measured yet
    for _ in range(10):
        clock.go(1.0)
        held.note_batch(2, 0.01)  # computed in no time, but no more than two a second leave
    assert held.expected_wait() == pytest.approx(50)
    assert check_refused(held.take_rows, 1, AGES).retry_after == 50
    assert check_refused(held.take_bytes, 1).retry_after == 50
    held.release_rows(90)
    assert held.expected_wait() == pytest.approx(5)


def test_retry_after_is_never_under_a_second_nor_over_a_minute(clock):
    held = Admission(1, 1000)
    held.take_rows(1, AGES)
    clock.go(1.0)
    held.note_batch(10_000, 0.001)
    assert check_refused(held.take_rows, 1, AGES).retry_after == 1
    for _ in range(20):
        clock.go(3600.0)
        held.note_batch(1, 3600.0)
    assert check_refused(held.take_rows, 1, AGES).retry_after == MAX_RETRY_AFTER_SECONDS


def test_a_machine_that_was_paused_once_refuses_nobody(clock):
    held = Admission(100, 1000)
    held.take_rows(16, AGES)
    for _ in range(10):
        clock.go(DRAIN_WINDOW_SECONDS)
        held.note_batch(16 * 50, DRAIN_WINDOW_SECONDS)
    before = held.expected_wait()
    clock.go(120.0)
    held.note_batch(16, 120.0)
    assert before < held.expected_wait() < 10 * before
    held.take_rows(16, 1.0)


def test_lasting_slowness_is_believed_within_a_few_batches(clock):
    held = Admission(100, 1000)
    held.take_rows(16, AGES)
    for seconds in [DRAIN_WINDOW_SECONDS] * 10 + [25.0] * 5:
        clock.go(seconds)
        held.note_batch(16, seconds)
    assert held.expected_wait() > 20
    check_refused(held.take_rows, 1, 30)


def test_idle_time_does_not_count_as_slowness(clock):
    held = Admission(100, 1000)
    held.take_rows(10, AGES)
    clock.go(1.0)
    held.note_batch(10, 0.01)
    held.release_rows(10)
    clock.go(3600.0)
    held.take_rows(100, AGES)
    assert held.expected_wait() == pytest.approx(0.1)


def test_a_slow_start_is_forgotten_as_rows_get_faster(clock):
    held = Admission(100, 1000)
    held.take_rows(100, AGES)
    held.note_batch(1, 1.0)
    for _ in range(100):
        clock.go(DRAIN_WINDOW_SECONDS)
        held.note_batch(1000, 0.1)
    assert held.expected_wait() == pytest.approx(100 * DRAIN_WINDOW_SECONDS / 1000)


def test_requests_without_rows_do_not_upset_the_measuring(clock):
    held = Admission(100, 1000)
    held.take_rows(100, AGES)
    clock.go(2 * DRAIN_WINDOW_SECONDS)
    held.note_batch(0, 1e-6)
    assert math.isfinite(held.expected_wait())
    check_refused(held.take_rows, 1, AGES)
    held.release_rows(50)
    held.take_rows(1, AGES)
