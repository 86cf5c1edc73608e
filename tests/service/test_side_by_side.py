"""Rows of a call by several threads."""

import threading
import time

import numpy as np
import pytest
from shortlist.side_by_side import FEWEST, TURNS, SideBySide


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("rows", [0, 1, FEWEST, 2 * FEWEST, 33, 500])
@pytest.mark.parametrize("fewest", [1, FEWEST])
def test_every_row_is_given_once(threads, rows, fewest):
    given, found, turns = np.arange(2 * rows).reshape(rows, 2), np.zeros(rows, int), []

    def add(numbers, sums):
        turns.append(len(sums))
        sums += numbers.sum(axis=1) + 1

    SideBySide(threads, fewest)(add, given, found)
    np.testing.assert_array_equal(found, given.sum(axis=1) + 1)
    assert sum(turns) == rows
    assert all(turn >= fewest for turn in sorted(turns)[1:]), "only the last may be of fewer rows"
    assert len(turns) <= max(1, TURNS * threads)
    assert (len(turns) > 1) == (threads > 1 and rows >= 2 * fewest)


def test_turns_are_taken_at_once():
    meeting, threads = threading.Barrier(3), set()

    def meet(rows):
        meeting.wait(20)  # each waits for the others
        threads.add(threading.get_ident())

    SideBySide(3)(meet, np.zeros(3 * FEWEST))
    assert len(threads) == 3
    assert threading.get_ident() in threads


def test_a_thread_that_is_late_is_not_waited_for():
    side_by_side, over = SideBySide(2), threading.Event()
    busy = side_by_side.others.submit(over.wait, 60)
    found = np.zeros(4 * FEWEST)
    start = time.monotonic()
    side_by_side(lambda rows: rows.__iadd__(1), found)
    assert time.monotonic() - start < 30
    assert found.tolist() == [1] * found.size
    over.set()
    assert busy.result()


@pytest.mark.parametrize("bad", [0, 2 * FEWEST - 1])
def test_an_error_of_any_turn_is_raised(bad):
    def refuse(rows):
        if bad in rows:
            raise ValueError(f"row {bad}")
        time.sleep(0.2)  # the other thread takes its turn

    with pytest.raises(ValueError, match=f"row {bad}"):
        SideBySide(2)(refuse, np.arange(2 * FEWEST))
