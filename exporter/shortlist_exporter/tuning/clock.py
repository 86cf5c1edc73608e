"""The time budget of a search, and the progress bar that shows it."""

from __future__ import annotations

import time

from shortlist_exporter.core.types import Progress

SECONDS = ", seconds"  # at the end of a stage's name: what the numbers beside it count


class OutOfTime(Exception):
    """Raised where the budget is spent: the search ends with what was measured so far."""


class Clock:
    """Seconds since it was made. plan_seconds: what is still to come, as far as one can tell, in seconds."""

    def __init__(self, minutes: float, report: Progress) -> None:
        """Start; `report` gets (stage, seconds done, seconds in all)."""
        self.start, self.budget, self.report, self.plan_seconds = time.monotonic(), 60 * minutes, report, 0.0

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.start

    @property
    def left(self) -> float:
        """Seconds of the budget; under 0 where it is spent."""
        return self.budget - self.elapsed

    def report_stage(self, stage: str) -> None:
        """Show the stage, the seconds since the start and those that the search may take in all."""
        elapsed = self.elapsed
        self.report(f"{stage}{SECONDS}", int(elapsed), int(elapsed + max(1.0, min(self.plan_seconds, self.left))))

    def check(self, stage: str) -> None:
        """Move the bar; raises OutOfTime."""
        self.report_stage(stage)
        if self.left <= 0:
            raise OutOfTime

    def watch(self, label: str) -> Progress:
        """Progress of a fit, which is given up when the budget is spent."""
        return lambda stage, done, total: self.check(f"{label}: {stage}" + (f" {done / total:.0%}" if done else ""))
