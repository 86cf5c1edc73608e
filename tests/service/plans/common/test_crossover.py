"""Whether dense is faster at a number of rows is told by several calls, of slow ones by fewer."""

import numpy as np
import pytest
from shortlist.plans.common import crossover
from shortlist.plans.common.crossover import CROSSOVER_CALLS, CROSSOVER_SECONDS, LEAST_CALLS, dense_wins

ROWS = np.zeros((4, 2), np.float32)


@pytest.mark.parametrize(
    ("seconds", "calls"),
    [(1e-4, CROSSOVER_CALLS), (CROSSOVER_SECONDS, LEAST_CALLS), (CROSSOVER_SECONDS / 9, 5)],
)
def test_slow_sides_are_timed_less_often(monkeypatch, seconds, calls):
    timed = []
    monkeypatch.setattr(crossover, "time_call", lambda run, rows: timed.append(run) or seconds)
    assert dense_wins("plan", "dense", ROWS)  # as fast: dense, which is exact
    assert timed == ["plan", "dense"] * calls


def test_one_slow_call_of_either_side_decides_nothing(monkeypatch):
    seconds = iter([(9.0, 1e-3), (1e-4, 1e-3), (1e-4, 1e-3)])
    pairs = (second for pair in seconds for second in pair)
    monkeypatch.setattr(crossover, "time_call", lambda run, rows: next(pairs))
    assert not dense_wins("plan", "dense", ROWS)
