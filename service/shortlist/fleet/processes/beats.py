"""Beats: every second each process tells its supervisor that it goes on, and what it has counted so far.

One that ends all at once has then told all but its last second's counts, and one that is silent hangs: its loop does
nothing, so that it answers nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

BEAT_SECONDS = 1.0
FALTERING_SECONDS = 3.0  # of silence, from which on others get the connections


class Pulse:
    """When a process was heard last, as the supervisor sees it."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def note(self) -> None:
        """It was heard now."""
        self.last = time.monotonic()

    @property
    def silence(self) -> float:
        """Seconds since it was heard."""
        return time.monotonic() - self.last

    @property
    def falters(self) -> bool:
        """Whether it has missed some beats."""
        return self.silence > FALTERING_SECONDS


async def keep_beating(tell: Callable[[str, Any], None], read_counts: Callable[[], Awaitable[Any]]) -> None:
    """Tell beats in an endless loop: the counts where they have changed since the last one, else nothing."""
    last: Any = None
    while True:
        counts = await read_counts()
        tell("beat", None if counts == last else counts)
        last = counts
        await asyncio.sleep(BEAT_SECONDS)


async def watch_beats(list_pulses: Callable[[], list[Pulse]], check: Callable[[], None]) -> None:
    """Call `check` every second, but not where this process was stopped itself: then it has heard nobody."""
    while True:
        start = time.monotonic()
        await asyncio.sleep(BEAT_SECONDS)
        if time.monotonic() - start > FALTERING_SECONDS:
            for pulse in list_pulses():
                pulse.note()
        else:
            check()
