"""The promise of a head, raised step by step while live rows are less precise than was promised, and lowered again."""

from __future__ import annotations

from shortlist.evaluation.sequential import HOLD_ROWS
from shortlist.head import Head

MAX_STEPS = 6  # from .99 to .9998
STEP_FACTOR = 2  # by which a step divides the share of misses


class RaisedPromise:
    """Which promise is in force for a head that was exported with one.

    declared: the head as it was loaded. Every alarm is a step up, be there one left; `HOLD_ROWS` rows asked again
    without an alarm, and without a step, are a step down. steps: that the promise in force is above the declared one.
    """

    def __init__(self, declared: Head) -> None:
        self.declared, self.steps, self.quiet_rows = declared, 0, 0

    def observe(self, rows: int, *, alarm: bool) -> Head | None:
        """The head to search with from now on, after so many more rows were asked again; None where nothing changes.

        alarm: whether these rows raised one.
        """
        self.quiet_rows += rows
        steps = self.steps
        if alarm:
            self.quiet_rows, steps = 0, min(self.steps + 1, MAX_STEPS)
        elif self.steps and self.quiet_rows >= HOLD_ROWS:
            self.quiet_rows, steps = 0, self.steps - 1
        if steps == self.steps:
            return None
        self.steps = steps
        return self.make_head()

    def make_head(self) -> Head:
        """The declared head, searching as the steps say."""
        promise = read_head_promise(self.declared)
        assert promise is not None
        return self.declared.with_settings(promise=1 - (1 - promise) / STEP_FACTOR**self.steps)


def read_head_promise(head: Head | None) -> float | None:
    """The promise that a head searches by; None where it has none."""
    return None if head is None else head.manifest.promise
