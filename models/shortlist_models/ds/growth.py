"""The lasso's schedule: a coefficient that grows exponentially until validation accuracy drops."""

from __future__ import annotations


class Growth:
    """A coefficient: 0 at first, then `start`, then `factor` times more a round.

    Once accuracy drops, one step back for good.
    """

    def __init__(self, start: float, factor: float, tolerance: float) -> None:
        """tolerance: how far under its best a validation accuracy counts as a drop."""
        self.start, self.factor, self.tolerance = start, factor, tolerance
        self.value = 0.0
        self.best = 0.0
        self.stopped = False

    def update(self, accuracy: float, *, failing: bool = False, must_stop: bool = False, enough: bool = False) -> None:
        """Set the coefficient of the next round by the validation accuracy of the last.

        failing: the task loss is too high to prune, so go one step back without stopping. must_stop: the stage is to
        end, so grow whatever the accuracy. enough: do not grow now.
        """
        self.best = max(self.best, accuracy)
        if failing:
            self.value /= self.factor
        elif must_stop:
            self.grow()
        elif not self.stopped and not enough:
            self.step_by_accuracy(accuracy)

    def step_by_accuracy(self, accuracy: float) -> None:
        """Grow while the accuracy is within `tolerance` of the best; else go one step back, and stop there."""
        if accuracy < self.best - self.tolerance:
            self.stopped = True
            self.value /= self.factor
        else:
            self.grow()

    def grow(self) -> None:
        """Multiply the coefficient by the factor; from 0 begin with `start`."""
        self.value = self.value * self.factor if self.value else self.start
