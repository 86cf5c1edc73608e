"""A coefficient that grows exponentially until validation drops."""

from __future__ import annotations


class Growth:
    """0 at first, then `start`, times `factor` a round; a round back and no further once validation has dropped."""

    def __init__(self, start: float, factor: float, tolerance: float) -> None:
        """tolerance: how far under its best a validation accuracy counts as a drop."""
        self.start, self.factor, self.tolerance = start, factor, tolerance
        self.value = 0.0
        self.best = 0.0
        self.stopped = False

    def update(self, accuracy: float, *, failing: bool = False, forced: bool = False, enough: bool = False) -> None:
        """Hear of a round.

        failing: the task loss is too high to prune: a round back, and no memory of it. forced: grow whatever
        validation says. enough: do not grow now.
        """
        self.best = max(self.best, accuracy)
        if failing:
            self.value /= self.factor
        elif forced:
            self.grow()
        elif not self.stopped and not enough:
            self.hear(accuracy)

    def hear(self, accuracy: float) -> None:
        """Up a step, or back one for good."""
        if accuracy < self.best - self.tolerance:
            self.stopped = True
            self.value /= self.factor
        else:
            self.grow()

    def grow(self) -> None:
        """One step up."""
        self.value = self.value * self.factor if self.value else self.start
