"""Promises as they are asked for."""

import pytest
from shortlist.errors import BadInput
from shortlist_exporter.records.tuning import SplitFigures
from shortlist_exporter.tuning.promises import describe_shares, make_promise


def test_promises_that_contradict_each_other():
    with pytest.raises(BadInput, match=r"P@5 is asked to reach 0\.9 and 0\.95: give one of them"):
        make_promise([(5, 0.9), (5, 0.95)])
    with pytest.raises(BadInput, match="nothing is promised"):
        make_promise([])


def test_what_was_reached_names_every_figure_that_was_asked_for():
    """A head that keeps P@k and fails by its log-probabilities alone would seem to keep all."""
    share = {"mean": 0.9985, "low": 0.9913, "high": 0.9997}
    times = dict.fromkeys(("us", "us_p99", "dense_us", "speedup", "scored", "dense_share"), 1.0)
    figures = SplitFigures(rows=650, precision={1: share}, logprob_error=0.31, logprob_error_high=0.342, **times)
    precise = "P@1 0.9985 (at least 0.9913)"
    assert describe_shares(make_promise([(1, 0.99)]), figures) == precise
    promise = make_promise([(1, 0.99)], logprob_error=0.05)
    assert describe_shares(promise, figures) == f"{precise}, log-prob error 0.31 nats (at most 0.34)"
    assert describe_shares(promise, figures, calibrated=False) == precise
