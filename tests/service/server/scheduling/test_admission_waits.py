"""How long what is held is expected to wait, by how fast rows were computed and left."""

from __future__ import annotations

import math

import pytest
from shortlist.server.scheduling import admission
from shortlist.server.scheduling.admission import DRAIN_WINDOW_SECONDS, MAX_RETRY_AFTER_SECONDS, Admission

from tests.support.clock import Clock
from tests.support.servers.refusals import AGES, expect_refusal


@pytest.fixture
def clock(monkeypatch):
    """The module's clock; the test moves it."""
    clock = Clock(100.0)
    monkeypatch.setattr(admission, "time", clock)
    return clock


def test_a_request_that_would_wait_for_too_much_of_its_time_is_refused():
    admission = Admission(10_000, 1000)
    admission.take_rows(100, AGES)
    admission.note_batch(10, 1.0)  # 0.1 s a row, so that 100 take 10 s
    assert admission.estimate_wait() == pytest.approx(10)
    expect_refusal(admission.take_rows, 1, 24)
    expect_refusal(admission.take_rows, 50, 24)
    admission.take_rows(1, 26)
    assert expect_refusal(admission.take_rows, 1, 1).retry_after == 11


def test_retry_after_comes_from_the_measured_rate(clock):
    admission = Admission(100, 1000)
    admission.take_rows(100, AGES)
    assert expect_refusal(admission.take_rows, 1, AGES).retry_after == 1  # nothing was measured yet
    for _ in range(10):
        clock.now += 1.0
        admission.note_batch(2, 0.01)  # computed in no time, but no more than two a second leave
    assert admission.estimate_wait() == pytest.approx(50)
    assert expect_refusal(admission.take_rows, 1, AGES).retry_after == 50
    assert expect_refusal(admission.take_bytes, 1).retry_after == 50
    admission.release_rows(90)
    assert admission.estimate_wait() == pytest.approx(5)


def test_retry_after_is_never_under_a_second_nor_over_a_minute(clock):
    admission = Admission(1, 1000)
    admission.take_rows(1, AGES)
    clock.now += 1.0
    admission.note_batch(10_000, 0.001)
    assert expect_refusal(admission.take_rows, 1, AGES).retry_after == 1
    for _ in range(20):
        clock.now += 3600.0
        admission.note_batch(1, 3600.0)
    assert expect_refusal(admission.take_rows, 1, AGES).retry_after == MAX_RETRY_AFTER_SECONDS


def test_a_machine_that_was_paused_once_refuses_nobody(clock):
    admission = Admission(100, 1000)
    admission.take_rows(16, AGES)
    for _ in range(10):
        clock.now += DRAIN_WINDOW_SECONDS
        admission.note_batch(16 * 50, DRAIN_WINDOW_SECONDS)
    before = admission.estimate_wait()
    clock.now += 120.0
    admission.note_batch(16, 120.0)
    assert before < admission.estimate_wait() < 10 * before
    admission.take_rows(16, 1.0)


def test_lasting_slowness_is_believed_within_a_few_batches(clock):
    admission = Admission(100, 1000)
    admission.take_rows(16, AGES)
    for seconds in [DRAIN_WINDOW_SECONDS] * 10 + [25.0] * 5:
        clock.now += seconds
        admission.note_batch(16, seconds)
    assert admission.estimate_wait() > 20
    expect_refusal(admission.take_rows, 1, 30)


def test_idle_time_does_not_count_as_slowness(clock):
    admission = Admission(100, 1000)
    admission.take_rows(10, AGES)
    clock.now += 1.0
    admission.note_batch(10, 0.01)
    admission.release_rows(10)
    clock.now += 3600.0
    admission.take_rows(100, AGES)
    assert admission.estimate_wait() == pytest.approx(0.1)


def test_a_slow_start_is_forgotten_as_rows_get_faster(clock):
    admission = Admission(100, 1000)
    admission.take_rows(100, AGES)
    admission.note_batch(1, 1.0)
    for _ in range(100):
        clock.now += DRAIN_WINDOW_SECONDS
        admission.note_batch(1000, 0.1)
    assert admission.estimate_wait() == pytest.approx(100 * DRAIN_WINDOW_SECONDS / 1000)


def test_requests_without_rows_do_not_upset_the_measuring(clock):
    admission = Admission(100, 1000)
    admission.take_rows(100, AGES)
    clock.now += 2 * DRAIN_WINDOW_SECONDS
    admission.note_batch(0, 1e-6)
    assert math.isfinite(admission.estimate_wait())
    expect_refusal(admission.take_rows, 1, AGES)
    admission.release_rows(50)
    admission.take_rows(1, AGES)
