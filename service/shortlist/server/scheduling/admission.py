"""How much the server holds at a time, in rows, bytes and expected seconds; what is over is refused, early.

One rule for one row and for many. A refusal says when there should be room, by how fast rows are answered.
"""

from __future__ import annotations

import math
import time

from shortlist.errors import Overloaded

WINDOW = 0.25  # seconds over which the drain rate is measured
LONGEST = 60  # seconds that a client is told to wait at most
REMEMBER = 0.8  # weight of the past in what a row takes
STALL = 4.0  # a batch or window counts as at most so many times slower than before: a paused machine is no load
MARGIN = 0.5  # of a request's time may be spent in waiting, as expected; the rest is for what was not


class Admission:
    """The rows and bytes of accepted requests that are not answered yet."""

    def __init__(self, most_rows: int, most_bytes: int) -> None:
        """Nothing held yet."""
        self.most_rows, self.most_bytes = most_rows, most_bytes
        self.rows = 0
        self.bytes = 0
        self.row_seconds = 0.0  # as batches take
        self.rate = math.inf  # rows a second that left in the last window, where something was held throughout
        self.usual = 0.0  # the last rate that was finite
        self.drained = 0
        self.since = time.monotonic()

    def check(self, length: int, own: int = 0) -> None:
        """Raise Overloaded where `length` more bytes are too many for a request that holds `own`.

        A lone request is always taken.
        """
        if self.rows >= self.most_rows or (self.bytes > own and self.bytes + length > self.most_bytes):
            raise self.refusal()

    def enter(self, length: int, own: int = 0) -> None:
        """Hold bytes that came; raises as `check`. What is only announced is not held: it may never come."""
        self.check(length, own)
        self.bytes += length

    def check_rows(self, rows: int, seconds: float) -> None:
        """Raise Overloaded where `rows` of a request that has so many seconds left are too many.

        Equals `hold` and `leave` for what is answered at once: a window that is opened and closed tells nothing.
        """
        if self.rows and (self.rows + rows > self.most_rows or self.wait() > MARGIN * seconds):
            raise self.refusal()

    def hold(self, rows: int, seconds: float) -> None:
        """Hold a decoded request's rows; raises as `check_rows`."""
        self.check_rows(rows, seconds)
        if not self.rows:
            self.begin()
        self.rows += rows

    def leave(self, length: int, rows: int) -> None:
        """An answered or failed request no longer counts."""
        self.bytes -= length
        self.rows -= rows

    def begin(self) -> None:
        """A new window: only one throughout which something is held tells how fast rows leave."""
        self.drained, self.since = 0, time.monotonic()
        self.rate = math.inf

    def answered(self, rows: int, seconds: float) -> None:
        """Rows were computed together, in so many seconds."""
        if rows:
            new = seconds / rows
            old = self.row_seconds or new
            self.row_seconds = REMEMBER * old + (1 - REMEMBER) * min(new, STALL * old)
        if not self.rows:
            return  # nothing is held, so there is no window
        self.drained += rows
        elapsed = time.monotonic() - self.since
        if elapsed >= WINDOW and self.drained:
            self.usual = max(self.drained / elapsed, self.usual / STALL)
            self.begin()
            self.rate = self.usual

    def wait(self) -> float:
        """Seconds after which what is held now should be answered."""
        return self.rows * max(self.row_seconds, 1 / self.rate)

    def refusal(self) -> Overloaded:
        """Why a request is not taken, and when to come again."""
        seconds = max(1, min(LONGEST, math.ceil(self.wait())))
        held = f"{self.rows} rows in {self.bytes} bytes"
        return Overloaded(f"the server holds {held} and takes no more: try again in {seconds} s", seconds)
