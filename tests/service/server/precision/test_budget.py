"""What is spent is at most a share of the time."""

from __future__ import annotations

import pytest
from shortlist.server.precision.budget import SAVED_SECONDS, CpuBudget

from tests.support.clock import Clock


def test_what_is_spent_has_to_come_back_first():
    clock = Clock(100.0)
    budget = CpuBudget(0.02, 2, clock)
    assert budget.count_wait() == 0
    budget.spend(1.0)
    assert budget.count_wait() == pytest.approx(25)
    clock.now += 20
    assert budget.count_wait() == pytest.approx(5)
    clock.now += 5
    assert budget.count_wait() == pytest.approx(0, abs=1e-9)


def test_over_time_no_more_than_the_share_is_spent():
    clock = Clock(100.0)
    budget, spent, start = CpuBudget(0.1, 1, clock), 0.0, clock.now
    while clock.now < start + 1000:
        clock.now += budget.count_wait()
        budget.spend(0.3)
        spent += 0.3
        clock.now += 0.3
    assert 99 < spent <= 100 + 1


def test_an_idle_time_leaves_little():
    clock = Clock(100.0)
    budget = CpuBudget(0.02, 1, clock)
    clock.now += 1e6
    assert budget.count_wait() == 0
    budget.spend(0.02 * SAVED_SECONDS + 0.2)
    assert budget.count_wait() == pytest.approx(10)
