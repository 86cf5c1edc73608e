"""A moving average of costs that one outlier does not spoil."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClippedAverage:
    """An exponential moving average in which a new value counts as at most `clip` times the average before it.

    recent_weight: weight of the new value, in (0, 1). The average itself is the caller's, a number that starts at 0.
    """

    recent_weight: float
    clip: float

    def update(self, average: float, value: float) -> float:
        """The average after `value`; the first value, of an average that is still 0, is taken as it is."""
        average = average or value
        most = self.clip * average
        return (1 - self.recent_weight) * average + self.recent_weight * (value if value < most else most)
