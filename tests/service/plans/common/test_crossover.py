"""Whether dense is faster at a number of rows is told by several calls, of slow ones by fewer."""

import numpy as np
import pytest
from shortlist.plans.common import crossover
from shortlist.plans.common.crossover import (
    CROSSOVER_CALLS,
    CROSSOVER_SECONDS,
    LEAST_CALLS,
    dense_wins,
    measure_crossover,
)

ROWS = np.zeros((4, 2), np.float32)


@pytest.mark.parametrize(
    ("seconds", "calls"),
    [(1e-4, CROSSOVER_CALLS), (CROSSOVER_SECONDS, LEAST_CALLS), (CROSSOVER_SECONDS / 9, 5)],
)
def test_slow_sides_are_timed_less_often(monkeypatch, seconds, calls):
    timed = []
    monkeypatch.setattr(crossover, "time_call", lambda run, rows: timed.append(run) or seconds)
    assert dense_wins("plan", "dense", ROWS, 4)  # as fast: dense, which is exact
    assert timed == ["plan", "dense"] * calls


def test_one_slow_call_of_either_side_decides_nothing(monkeypatch):
    seconds = iter([(9.0, 1e-3), (1e-4, 1e-3), (1e-4, 1e-3)])
    pairs = (second for pair in seconds for second in pair)
    monkeypatch.setattr(crossover, "time_call", lambda run, rows: next(pairs))
    assert not dense_wins("plan", "dense", ROWS, 4)


def test_calls_have_rows_of_their_own_and_both_sides_the_same(monkeypatch):
    contexts, seen = np.arange(10, dtype=np.float32)[:, None], []
    monkeypatch.setattr(crossover, "time_call", lambda run, rows: seen.append(rows[:, 0].tolist()) or 1.0)
    dense_wins("plan", "dense", contexts, 4)
    assert seen == [part for part in ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]) for _ in range(2)]


@pytest.mark.parametrize(
    ("dense_wins_at", "crossover", "least_tried"),
    [
        ({128, 64, 32, 16, 8, 4, 2, 1}, 1, 1),
        ({128, 64, 32}, 32, 8),
        ({128}, 128, 32),
        (set(), None, 64),
        ({128, 32, 16, 8, 4, 2}, 2, 1),  # 64 was timed beside other work
        ({64, 32, 16}, 16, 4),
        ({64}, None, 16),
        ({128, 32}, 128, 8),
    ],
)
def test_one_timing_that_other_work_spoiled_does_not_decide(monkeypatch, dense_wins_at, crossover, least_tried):
    tried = []
    monkeypatch.setattr(
        "shortlist.plans.common.crossover.dense_wins",
        lambda plan, dense, contexts, rows: tried.append(rows) or rows in dense_wins_at,
    )
    assert measure_crossover("plan", "dense", np.zeros((200, 2), np.float32)) == crossover
    assert tried[-1] == least_tried
