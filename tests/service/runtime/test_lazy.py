"""Values that are made at first use, also in a process that was forked meanwhile."""

import os
import threading

import pytest
from shortlist.runtime.lazy import Lazy
from shortlist.runtime.parallel import ThreadedRows

from tests.service.runtime.forks import run_forked


def test_many_threads_make_one():
    made = []
    lazy = Lazy(lambda: made.append(1) or len(made))
    threads = [threading.Thread(target=lazy) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (lazy(), made) == (1, [1])


def test_what_fails_is_tried_again():
    results = iter([OSError("busy"), "value"])

    def make():
        result = next(results)
        if isinstance(result, OSError):
            raise result
        return result

    lazy = Lazy(make)
    with pytest.raises(OSError, match="busy"):
        lazy()
    assert lazy() == "value"


def test_a_process_that_is_forked_while_a_value_is_made_makes_it():
    begun, over, parent = threading.Event(), threading.Event(), os.getpid()

    def make():
        if os.getpid() == parent:
            begun.set()
            over.wait(30)
        return "value"

    lazy = Lazy(make)
    thread = threading.Thread(target=lazy)
    thread.start()
    begun.wait(30)
    try:
        assert run_forked(lambda: lazy() == "value") == 0
    finally:
        over.set()
        thread.join()


@pytest.mark.filterwarnings("ignore:.*use of fork")  # of Python 3.12 and later
def test_threads_of_rows_are_those_of_their_process():
    """A forked process has none of its parent's, and what it left them to do was kept for ever."""
    rows = ThreadedRows(2)
    pool = rows.others()
    pool.submit(int).result()
    assert rows.others() is pool
    assert run_forked(lambda: rows.others() is not pool and rows.others().submit(int).result(5) == 0) == 0
    assert rows.others() is pool
