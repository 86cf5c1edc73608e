"""Calls of several contenders in turn."""

import numpy as np
import pytest
from shortlist.evaluation import timing
from shortlist.evaluation.timing import CallTimes, compute_median_speedup, time_calls


def returning(log, name):
    def call(rows):
        log.append((name, rows[:, 0].tolist()))
        return rows[:, :1].astype(np.int64)

    return call


def test_every_contender_has_the_same_rows_in_turn():
    log = []
    calls = {name: returning(log, name) for name in "ab"}
    rows = np.arange(60, dtype=np.float32)[:, None]
    times = time_calls(calls, rows, 2, block=10)
    assert {name: one.seconds.size for name, one in times.items()} == {"a": 30, "b": 30}
    assert times["a"].ids[:, 0].tolist() == list(range(60))
    after_warm_up = log[2 * timing.WARM_UP_CALLS :]
    assert [name for name, _ in after_warm_up] == (["a"] * 10 + ["b"] * 10) * 3
    assert [part for name, part in after_warm_up if name == "a"] == [
        part for name, part in after_warm_up if name == "b"
    ]


def test_warm_up_uses_no_row_that_is_timed():
    log = []
    time_calls({"a": returning(log, "a")}, np.arange(1, 9, dtype=np.float32)[:, None], 1)
    assert len({row for _, rows in log for row in rows}) == 8 + timing.WARM_UP_CALLS


def test_a_contender_may_be_called_for_some_batches_only():
    calls = {name: returning([], name) for name in "ab"}
    times = time_calls(calls, np.arange(20, dtype=np.float32)[:, None], 1, every={"b": 5})
    assert times["b"].ids[:, 0].tolist() == [0, 5, 10, 15]
    assert times["a"].seconds.size == 20


def test_it_ends_when_the_time_is_over():
    calls = {"a": returning([], "a")}
    assert time_calls(calls, np.zeros((1000, 1), np.float32), 1, block=20, max_seconds=0)["a"].seconds.size == 20


def test_rows_that_fill_no_batch_are_left_out():
    times = time_calls({"a": returning([], "a")}, np.zeros((3, 1), np.float32), 4)
    assert (times["a"].seconds.size, times["a"].ids.size) == (0, 0)


@pytest.mark.parametrize("block", [20, 2])
def test_one_pause_does_not_move_the_speedup(block):
    no_ids = np.empty((0, 0), np.int64)
    dense, other = np.full(5 * block, 4e-3), np.full(5 * block, 1e-3)
    other[3] = 1
    assert compute_median_speedup(CallTimes(dense, no_ids), CallTimes(other, no_ids), block) == pytest.approx(4)
