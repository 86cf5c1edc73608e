"""The time budget: what is reported, and when a search ends."""

import pytest
from shortlist_exporter.tuning.clock import Clock, OutOfTime


def test_the_budget_ends_a_fit(cache):
    clock = Clock(1e-9, lambda *_: None)
    with pytest.raises(OutOfTime):
        clock.watch("l2s")("exact labels", 1, 2)


def test_what_a_stage_counts_is_said():
    """`candidates on the whole tune split: 4 of 62` read as if there were 62 candidates."""
    reported = []
    Clock(1, lambda *stage: reported.append(stage)).report_stage("candidates")
    assert reported == [("candidates, seconds", 0, 1)]
