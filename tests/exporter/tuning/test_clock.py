"""The time budget: what is reported, and when a search ends."""

import pytest
from shortlist_exporter.tuning.clock import Clock, OutOfTime


def test_the_budget_ends_a_fit(cache):
    clock = Clock(1e-9, lambda *_: None)
    with pytest.raises(OutOfTime):
        clock.watch("l2s")("exact labels", 1, 2)
