"""Notes of what happened: a request that is over, rows that were computed together."""

from __future__ import annotations

from typing import NamedTuple

from shortlist.core.results import FloatArray, IntArray

OK_STATUS = 200


class RequestNote(NamedTuple):
    """A request that is over.

    seconds: in all. phases: seconds in each of the metrics' `PHASES`. scored: [B] classes scored, of a top-k result.
    proved: whether that was proved by bounds. risk: [B] as the plan estimates it, None where it does not.
    """

    endpoint: str
    status: int
    seconds: float
    phases: tuple[float, float, float, float]
    scored: IntArray | None
    proved: bool
    risk: FloatArray | None


class BatchNote(NamedTuple):
    """Rows that were computed together, for so many requests, in so many seconds."""

    rows: int
    requests: int
    seconds: float
