"""A clock that stands until a test moves it."""

from __future__ import annotations


class Clock:
    """Seconds, as the function `time.monotonic` gives them; or in the place of the module `time`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    monotonic = perf_counter = __call__
