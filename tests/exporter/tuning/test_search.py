"""Successive halving: stopped by hand, by a slow machine, by a budget too small."""

from dataclasses import replace

import numpy as np
import pytest
from shortlist_exporter.tuning import search
from shortlist_exporter.tuning.choice import Choice
from shortlist_exporter.tuning.clock import Clock
from shortlist_exporter.tuning.fits import Fits
from shortlist_exporter.tuning.search import Search
from shortlist_exporter.tuning.space import (
    SPACES,
)
from shortlist_exporter.tuning.tuner import NoHead, tune

from tests.exporter.tuning.conftest import ROWS, contexts, dense, few_builds, request_of

pytestmark = pytest.mark.slow


def test_ctrl_c_keeps_the_best_so_far(tmp_path, monkeypatch):
    whole, builds = Search.sweep, []

    def sweep(self, number, fit, label):
        if len(builds) == 3:
            raise KeyboardInterrupt
        builds.append(fit.build)
        whole(self, number, fit, label)

    monkeypatch.setattr(Search, "sweep", sweep)
    record = tune(dense, contexts, tmp_path / "lm" / "1", request_of(tmp_path / "cache"))
    assert record.interrupted
    assert "heads of a search that was stopped" in record.sentence
    assert [(left.what, left.why) for left in record.left] == [("the search", "stopped by hand")]
    assert {trial.rung for trial in record.trials} == {0}
    winner = record.trials[record.chosen]
    assert winner.test.precision[1].low >= 0.95
    assert winner.tune.rows == record.tune.rows, "what is chosen is measured on the whole tune split"


@pytest.mark.parametrize(
    ("sweeps", "words"),
    [(0, r"no head was measured \(stopped by hand\): run the same"), (1, "times dense: run the same command again, ")],
)
def test_who_stops_a_search_that_found_nothing_is_told_to_go_on(tmp_path, monkeypatch, sweeps, words):
    """More minutes, or a smaller promise, were asked for, though neither had ended the search."""
    whole, builds = Search.sweep, []

    def sweep(self, number, fit, label):
        if len(builds) == sweeps:
            raise KeyboardInterrupt
        builds.append(fit.build)
        whole(self, number, fit, label)

    monkeypatch.setattr(Search, "sweep", sweep)
    monkeypatch.setattr(Choice, "keeps_on_tune", lambda self, trial: False)
    with pytest.raises(NoHead, match=words):
        tune(dense, contexts, tmp_path / "lm" / "1", request_of(tmp_path / "cache"))


def test_a_slow_machine_takes_the_best_head_to_the_top(tmp_path, monkeypatch):
    """With time for one head on all contexts, others are left out, whatever they would have cost."""
    seconds, whole = [0.0], Fits.run_method

    def run_method(self, build, rows, progress):
        seconds[0] += 40 * (rows / fewest) ** (np.log(2) / np.log(3))  # 40, 80 and 160 s
        return whole(self, build, rows, progress)

    monkeypatch.setattr(Fits, "run_method", run_method)
    monkeypatch.setattr(Clock, "elapsed", property(lambda _: seconds[0]))
    monkeypatch.setattr(search, "MIN_FIT_CONTEXTS", 100)
    backwards = replace(SPACES["svd"], builds=lambda dense: few_builds(dense)[::-1])
    monkeypatch.setitem(SPACES, "svd", backwards)
    fewest = round(ROWS * 0.8 / 9)
    record = tune(dense, contexts, tmp_path / "lm" / "1", request_of(tmp_path / "cache"))
    assert record.interrupted
    assert {dict(trial.options)["width"] for trial in record.trials} == {"48"}
    assert record.trials[record.chosen].rung == 2
    assert record.trials[record.chosen].fit_rows == record.fit.rows
    why = "what time is left is kept for a better head with all contexts: give more time"
    assert [left.why for left in record.left] == [why, why]


def test_a_budget_too_small_for_any_head_says_so(cache, tmp_path):
    with pytest.raises(NoHead, match=r"no head was measured \(the time budget was spent\): give --time-budget more"):
        tune(dense, contexts, tmp_path / "lm" / "1", request_of(cache, minutes=1e-6))
    assert list(tmp_path.iterdir()) == []
