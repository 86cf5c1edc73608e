"""Rows of a call by several threads."""

import threading
import time

import numpy as np
import pytest
from shortlist.runtime.parallel import MIN_THREAD_SECONDS, PARTS_PER_THREAD, ThreadedRows

FAST, SLOW = MIN_THREAD_SECONDS / 4, 10.0


def side_by_side(threads, row_seconds):
    """One that has seen rows take so long."""
    rows_pool = ThreadedRows(threads)
    rows_pool.row_seconds = row_seconds
    return rows_pool


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("rows", [0, 1, 2, 7, 8, 33, 500])
@pytest.mark.parametrize("row_seconds", [0, FAST, SLOW])
def test_every_row_is_run_once(threads, rows, row_seconds):
    counts, parts = np.zeros(rows, int), []

    def count(first, last):
        parts.append(last - first)
        counts[first:last] += 1

    side_by_side(threads, row_seconds)(count, rows)
    assert counts.tolist() == [1] * rows
    assert sum(parts) == rows
    assert len(parts) <= max(1, PARTS_PER_THREAD * threads)
    worth = {0: rows + 1, FAST: 8, SLOW: 2}[row_seconds]  # rows whose work is worth two threads
    assert (len(parts) > 1) == (threads > 1 and rows >= worth)


def test_what_rows_take_is_measured():
    rows_pool = ThreadedRows(2)
    for _ in range(20):
        rows_pool(lambda first, last: time.sleep(0.002 * (last - first)), 2)
    assert rows_pool.row_seconds > 0.0015  # sleep may take longer, never less
    before = rows_pool.row_seconds
    for _ in range(20):
        rows_pool(lambda first, last: None, 1000)
    assert rows_pool.row_seconds < before / 10


def test_a_pause_counts_as_no_more_than_twice_what_was_known():
    rows_pool = ThreadedRows(2)
    for seconds, expected in ((1.0, 1.0), (1.0, 1.0), (50.0, 1.2), (1.2, 1.2), (0.2, 1.0)):
        rows_pool.note(seconds)
        assert rows_pool.row_seconds == pytest.approx(expected)


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_one_thread_runs_all_rows_by_one_call(rows):
    parts = []
    side_by_side(1, SLOW)(lambda first, last: parts.append((first, last)), rows)
    assert parts == [(0, rows)]


def test_parts_run_at_once():
    meeting, threads = threading.Barrier(3), set()

    def meet(first, last):
        meeting.wait(20)  # each waits for the others
        threads.add(threading.get_ident())

    side_by_side(3, SLOW)(meet, 3)
    assert len(threads) == 3
    assert threading.get_ident() in threads


def test_a_thread_that_is_late_is_not_waited_for():
    rows_pool, over = side_by_side(2, SLOW), threading.Event()
    busy = rows_pool.others().submit(over.wait, 60)
    result = np.zeros(16)
    start = time.monotonic()
    rows_pool(lambda first, last: result[first:last].__iadd__(1), result.size)
    assert time.monotonic() - start < 30
    assert result.tolist() == [1] * result.size
    over.set()
    assert busy.result()


@pytest.mark.parametrize("bad", [0, 1])
def test_an_error_of_any_part_is_raised(bad):
    def refuse(first, last):
        if first <= bad < last:
            raise ValueError(f"row {bad}")
        time.sleep(0.2)  # the other thread runs the other part

    with pytest.raises(ValueError, match=f"row {bad}"):
        side_by_side(2, SLOW)(refuse, 2)
