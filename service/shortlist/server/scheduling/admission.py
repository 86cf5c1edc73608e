"""Admission control: how many rows, bytes and expected seconds of work may be held; more is refused before it is read.

One rule for one row and for many. A refusal says when to try again, which
follows from how fast rows are being computed.
"""

from __future__ import annotations

import math
import time
from types import TracebackType

from shortlist.core.moving_average import ClippedAverage
from shortlist.errors import Overloaded, TimedOut

DRAIN_WINDOW_SECONDS = 0.25  # over which the drain rate is measured
MAX_RETRY_AFTER_SECONDS = 60
MAX_COST_GROWTH = 4.0  # a batch or window counts as at most so many times slower: a paused machine is no load
BATCH_SECONDS_AVERAGE = ClippedAverage(recent_weight=1 - 0.8, clip=MAX_COST_GROWTH)
MAX_WAIT_SHARE = 0.5  # of a request's time that it may be expected to wait; the rest is for what nobody expected


class Admission:
    """The rows and bytes of the accepted requests of a server, or of one of its models, that are not answered yet.

    parent: the server's admission, where this is a model's. What a model holds, rows or bytes, its server holds too.
    """

    def __init__(self, max_rows: int, max_bytes: int, parent: Admission | None = None) -> None:
        self.max_rows, self.max_bytes, self.parent = max_rows, max_bytes, parent
        self.levels: tuple[Admission, ...] = (self,) if parent is None else (self, *parent.levels)
        self.rows = 0
        self.bytes = 0
        self.row_seconds = 0.0  # moving average of computing one row
        self.drain_rate = math.inf  # rows a second that left in the last window, where something was held throughout
        self.last_finite_rate = 0.0
        self.drained_rows = 0
        self.window_start = time.monotonic()

    def hold(self) -> Hold:
        """The room of one request of this server, as a context manager."""
        return Hold(self)

    def check_bytes(self, length: int, request_bytes: int = 0) -> None:
        """Raise Overloaded where `length` more bytes are too many for a request that holds `held` bytes already.

        A request is never refused while no other is held.
        """
        if self.parent is not None:
            self.parent.check_bytes(length, request_bytes)
        if self.rows >= self.max_rows or (self.bytes > request_bytes and self.bytes + length > self.max_bytes):
            raise self.make_refusal()

    def check_rows(self, rows: int, seconds: float) -> None:
        """Raise Overloaded where `rows` more are too many for a request with `seconds` left; TimedOut with none left.

        For a request computed inline this check is the whole of its admission: it equals `take_rows` and `release` in
        one turn of the event loop, but never enters the drain-rate window.
        """
        if seconds < 0:
            raise make_deadline_error()
        if self.parent is not None:
            self.parent.check_rows(rows, math.inf)
        if self.rows and (self.rows + rows > self.max_rows or self.estimate_wait() > MAX_WAIT_SHARE * seconds):
            raise self.make_refusal()

    def take_bytes(self, length: int, request_bytes: int = 0) -> None:
        """Hold bytes that arrived, in the parent too; raises as `check_bytes`, and holds nothing then.

        Announced bytes are not held: they may never come.
        """
        self.check_bytes(length, request_bytes)
        self.add_bytes(length)

    def add_bytes(self, length: int) -> None:
        """Hold bytes that are never refused, in the parent too."""
        for level in self.levels:
            level.bytes += length

    def take_rows(self, rows: int, seconds: float) -> None:
        """Hold the rows of a decoded request, in the parent too; raises as `check_rows`, and holds nothing then."""
        self.check_rows(rows, seconds)
        for level in self.levels:
            if not level.rows:
                level.start_window()
            level.rows += rows

    def release_bytes(self, length: int) -> None:
        """Give back bytes, in the parent too."""
        for level in self.levels:
            level.bytes -= length

    def release_rows(self, rows: int) -> None:
        """Give back rows, in the parent too."""
        for level in self.levels:
            level.rows -= rows

    def start_window(self) -> None:
        """Start a drain-rate window: only one in which something is held throughout tells how fast rows leave."""
        self.drained_rows, self.window_start = 0, time.monotonic()
        self.drain_rate = math.inf

    def note_batch(self, rows: int, seconds: float) -> None:
        """Take into account that `rows` rows were computed together in `seconds`, in the parent too."""
        if rows:
            self.row_seconds = BATCH_SECONDS_AVERAGE.update(self.row_seconds, seconds / rows)
        if self.rows:  # else there is no window
            self.note_drain(rows)
        if self.parent is not None:
            self.parent.note_batch(rows, seconds)

    def note_drain(self, rows: int) -> None:
        """Count rows that leave; close the window where it is over."""
        self.drained_rows += rows
        elapsed = time.monotonic() - self.window_start
        if elapsed >= DRAIN_WINDOW_SECONDS and self.drained_rows:
            self.last_finite_rate = max(self.drained_rows / elapsed, self.last_finite_rate / MAX_COST_GROWTH)
            self.start_window()
            self.drain_rate = self.last_finite_rate

    def estimate_wait(self) -> float:
        """Seconds after which what is held now should be answered."""
        return self.rows * max(self.row_seconds, 1 / self.drain_rate)

    def make_refusal(self) -> Overloaded:
        """Make the error for a refused request, with the seconds after which there should be room."""
        seconds = max(1, min(MAX_RETRY_AFTER_SECONDS, math.ceil(self.estimate_wait())))
        load = f"{self.rows} rows in {self.bytes} bytes"
        return Overloaded(f"the server holds {load} and takes no more: try again in {seconds} s", seconds)


class Hold:
    """The room that one request takes in a server; a context manager that gives all of it back.

    Bytes of the body and of the response are held until the client has read the response, rows until it is encoded.
    """

    __slots__ = ("bytes", "model", "rows", "server")

    def __init__(self, server: Admission) -> None:
        self.server = server
        self.model: Admission | None = None
        self.bytes = self.rows = 0

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release_rows()
        self.server.release_bytes(self.bytes)
        self.bytes = 0

    def check_bytes(self, length: int) -> None:
        """Raise Overloaded where `length` more bytes are too many."""
        self.server.check_bytes(length, self.bytes)

    def take_bytes(self, length: int) -> None:
        """Hold `length` more bytes that arrived; raises Overloaded."""
        self.server.take_bytes(length, self.bytes)
        self.bytes += length

    def take_rows(self, model: Admission, rows: int, seconds: float) -> None:
        """Hold the rows of a request to `model` that has so many seconds left; raises Overloaded, TimedOut."""
        model.take_rows(rows, seconds)
        self.model, self.rows = model, rows

    def release_rows(self) -> None:
        """Give back the rows: they are computed and encoded, or never will be."""
        if self.model is not None:
            self.model.release_rows(self.rows)
            self.model, self.rows = None, 0

    def keep_response(self, length: int) -> None:
        """Hold a response of `length` bytes, which is never refused, in place of the rows."""
        self.release_rows()
        self.server.add_bytes(length)
        self.bytes += length


def make_deadline_error() -> TimedOut:
    """Make the error for a request whose deadline passed before it was computed."""
    return TimedOut("the request's time was over before it was computed: allow more, or ask for less")
