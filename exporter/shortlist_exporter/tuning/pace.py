"""Predicts how long a head takes on more contexts from the times on fewer."""

from __future__ import annotations

from collections.abc import Sequence

from .space import Build


class Pace:
    """rows: contexts of each rung, from few to all. took: what each build's last rung took, in seconds."""

    def __init__(self, rows: Sequence[int]) -> None:
        """Begin with no build timed."""
        self.rows, self.took = rows, dict[Build, tuple[int, float]]()

    def note(self, build: Build, rung: int, seconds: float) -> None:
        """What a rung took for a build."""
        self.took[build] = rung, seconds

    def expect(self, build: Build, rung: int) -> float:
        """Seconds that a rung may take: from the build's rung before, or from its method's others; 0 if all is new."""
        if build in self.took:
            before, seconds = self.took[build]
            return seconds * self.estimate_growth(before, rung)
        same_method = [took for other, took in self.took.items() if other.method == build.method]
        return max(
            (seconds * self.estimate_growth(before, rung) for before, seconds in same_method if before <= rung),
            default=0.0,
        )

    def estimate_growth(self, before: int, rung: int) -> float:
        """Times as long as the rung `before`: some of it, as clusters of classes, takes its time with few contexts."""
        steps = zip(self.rows[before:rung], self.rows[before + 1 : rung + 1], strict=True)
        factor = 1.0
        for fewer, more in steps:
            factor *= (1 + more / fewer) / 2
        return factor

    def expect_rest(self, build: Build) -> float:
        """Seconds of all the rungs that a build has not climbed yet."""
        return sum(self.expect(build, rung) for rung in range(self.took[build][0] + 1, len(self.rows)))
