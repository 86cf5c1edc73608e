"""The moving average that clips outliers."""

from __future__ import annotations

import pytest
from shortlist.core.moving_average import ClippedAverage


def test_the_first_value_is_taken_as_it_is_and_later_ones_by_their_weight():
    average = ClippedAverage(recent_weight=0.25, clip=4.0)
    assert average.update(0.0, 8.0) == 8.0
    assert average.update(8.0, 4.0) == pytest.approx(7.0)


def test_an_outlier_counts_as_so_many_times_the_average():
    average = ClippedAverage(recent_weight=0.5, clip=2.0)
    assert average.update(1.0, 1000.0) == average.update(1.0, 2.0) == pytest.approx(1.5)


def test_a_lasting_change_is_believed():
    average, value = ClippedAverage(recent_weight=0.2, clip=2.0), 1.0
    for _ in range(60):
        value = average.update(value, 100.0)
    assert value == pytest.approx(100.0, rel=0.01)
