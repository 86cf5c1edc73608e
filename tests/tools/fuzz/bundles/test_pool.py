"""A process that dies or hangs is the outcome of its number, and the others go on."""

import os
import signal
import time
from functools import partial

from tools.fuzz.bundles import pool

DEATH, ERROR, HANG = 3, 5, 7


def make_work(*, hangs):
    def work(index):
        if index == DEATH:
            os.kill(os.getpid(), signal.SIGSEGV)
        if index == ERROR:
            raise KeyError("no\nsuch key")
        if index == HANG and hangs:
            time.sleep(600)
        return "fine"

    return work


def test_numbers_after_a_death_are_tried_all_the_same():
    outcomes = {each.index: each for each in pool.run_numbers(partial(make_work, hangs=False), iter(range(9)), 2)}
    assert sorted(outcomes) == list(range(9))
    assert [index for index in sorted(outcomes) if outcomes[index].failed] == [DEATH, ERROR]
    assert outcomes[DEATH].text == f"the process died with exit code {-signal.SIGSEGV}"
    assert outcomes[ERROR].text.startswith("KeyError: 'no\\nsuch key' (test_pool.py:")
    assert outcomes[0].text == "fine"


def test_a_number_that_takes_too_long_is_given_up(monkeypatch):
    monkeypatch.setattr(pool, "MAX_TRIAL_SECONDS", 5.0)
    outcomes = {each.index: each for each in pool.run_numbers(partial(make_work, hangs=True), iter(range(6, 9)), 1)}
    assert outcomes[HANG] == pool.Outcome(HANG, "took over 5 s", failed=True)
    assert outcomes[8].text == "fine"


def test_no_numbers():
    assert list(pool.run_numbers(partial(make_work, hangs=False), iter(()), 2)) == []
