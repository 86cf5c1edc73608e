"""Admission control: how many rows, bytes and expected seconds of work may be held; more is refused before it is read.

One rule for one row and for many. A refusal says when to try again, which
follows from how fast rows are being computed.
"""

from __future__ import annotations

import math
import time

from shortlist.core.moving_average import ClippedAverage
from shortlist.errors import Overloaded, TimedOut

from .fair_queue import TURN_ROWS
from .quotas import Quotas
from .shares import Shares

DRAIN_WINDOW_SECONDS = 0.25  # over which the drain rate is measured
MAX_RETRY_AFTER_SECONDS = 60
REFUSING_SECONDS = 1.0  # after a refusal in which others are expected
MAX_COST_GROWTH = 4.0  # a batch or window counts as at most so many times slower: a paused machine is no load
BATCH_SECONDS_AVERAGE = ClippedAverage(recent_weight=1 - 0.8, clip=MAX_COST_GROWTH)
MAX_WAIT_SHARE = 0.4  # of a request's time that it may be expected to wait; the rest is for what nobody expected


class Admission:
    """The rows and bytes of the accepted requests of a server, or of one of its models, that are not answered yet.

    row_shares, byte_shares: of each client, by the name that the server gives it. parent: the server's admission, where
    this is a model's. What a model holds, rows or bytes, its server holds too. quotas: of clients, if they have any.
    """

    def __init__(
        self, max_rows: int, max_bytes: int, parent: Admission | None = None, quotas: Quotas | None = None
    ) -> None:
        self.row_shares, self.byte_shares, self.parent = Shares(max_rows), Shares(max_bytes), parent
        self.quotas: Quotas | None = quotas if parent is None else parent.quotas
        self.levels: tuple[Admission, ...] = (self,) if parent is None else (self, *parent.levels)
        self.row_seconds = 0.0  # moving average of computing one row
        self.drain_rate = math.inf  # rows a second that left in the last window, where something was held throughout
        self.last_finite_rate = 0.0
        self.drained_rows = 0
        self.window_start = time.monotonic()
        self.refusal_time = -math.inf  # of the last one

    @property
    def is_refusing(self) -> bool:
        """Whether a request was refused lately, so that more are to be expected."""
        return time.monotonic() - self.refusal_time < REFUSING_SECONDS

    @property
    def rows(self) -> int:
        """Rows that are held."""
        return self.row_shares.held

    @property
    def bytes(self) -> int:
        """Bytes that are held."""
        return self.byte_shares.held

    def check_bytes(self, length: int, request_bytes: int = 0, client: str = "") -> None:
        """Raise Overloaded where `length` more bytes are too many for a request that holds so many bytes already.

        A request is never refused while no other is held.
        """
        if self.parent is not None:
            self.parent.check_bytes(length, request_bytes, client)
        elif self.quotas is not None:
            self.quotas.check(client)
        if self.row_shares.held:
            self.check_share(self.row_shares, "rows", 1, client)
        if self.byte_shares.held > request_bytes:
            self.check_share(self.byte_shares, "bytes", length, client)

    def check_rows(self, rows: int, seconds: float, client: str = "") -> None:
        """Raise Overloaded where `rows` more are too many for a request with `seconds` left; TimedOut with none left.

        A request is never refused while no other is held.
        """
        if seconds < 0:
            raise make_deadline_error()
        for level in self.levels:
            if level.row_shares.held:
                level.check_share(level.row_shares, "rows", rows, client)
        if self.row_shares.held and self.estimate_wait(client, rows) > MAX_WAIT_SHARE * seconds:
            raise self.make_refusal(client, f"{self.describe_load()}, too many to wait for in this request's time")

    def check_share(self, shares: Shares, unit: str, amount: int, client: str) -> None:
        """Raise Overloaded where `amount` more of a unit are too many: for all clients together, or for this one."""
        if shares.has_room(client, amount):
            return
        if shares.is_full(amount):
            raise self.make_refusal(client, f"{self.describe_load()} and takes no more")
        count = shares.get(client) + amount
        raise self.make_refusal(
            client, f"this client would hold {count} of the server's {shares.limit} {unit}, over its share"
        )

    def pass_rows(self, rows: int, seconds: float, client: str = "") -> None:
        """The whole admission of a request's rows that are computed at once; raises as `check_rows`.

        It equals `take_rows` and `release_rows` in one turn of the event loop, but never enters the drain-rate window.
        """
        self.check_rows(rows, seconds, client)
        if self.quotas is not None:
            self.quotas.spend(client, rows)

    def take_bytes(self, length: int, request_bytes: int = 0, client: str = "") -> None:
        """Hold bytes that arrived, in the parent too; raises as `check_bytes`, and holds nothing then.

        Announced bytes are not held: they may never come.
        """
        self.check_bytes(length, request_bytes, client)
        self.add_bytes(length, client)

    def add_bytes(self, length: int, client: str = "") -> None:
        """Hold bytes that are never refused, or give back where `length` is negative; in the parent too."""
        for level in self.levels:
            level.byte_shares.add(client, length)

    def take_rows(self, rows: int, seconds: float, client: str = "") -> None:
        """Hold the rows of a decoded request, in the parent too; raises as `check_rows`, and holds nothing then."""
        self.pass_rows(rows, seconds, client)
        for level in self.levels:
            if not level.row_shares.held:
                level.start_window()
            level.row_shares.add(client, rows)

    def release_rows(self, rows: int, client: str = "") -> None:
        """Give back rows, in the parent too."""
        for level in self.levels:
            level.row_shares.add(client, -rows)

    def start_window(self) -> None:
        """Start a drain-rate window: only one in which something is held throughout tells how fast rows leave."""
        self.drained_rows, self.window_start = 0, time.monotonic()
        self.drain_rate = math.inf

    def note_batch(self, rows: int, seconds: float) -> None:
        """Take into account that `rows` rows were computed together in `seconds`, in the parent too."""
        if rows:
            self.row_seconds = BATCH_SECONDS_AVERAGE.update(self.row_seconds, seconds / rows)
        if self.row_shares.held:  # else there is no window
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

    def estimate_wait(self, client: str = "", rows: int = 0) -> float:
        """Seconds after which `rows` more rows of a client should be answered.

        Clients take turns, so that no more of another's rows go before a client's last one than it has itself.
        """
        shares = self.row_shares
        ahead = (shares.get(client) + rows + TURN_ROWS) * shares.count_clients(client)
        return min(shares.held, ahead) * max(self.row_seconds, 1 / self.drain_rate)

    def describe_load(self) -> str:
        """What the server holds, in words."""
        server = self.levels[-1]
        return f"the server holds {server.rows} rows in {server.bytes} bytes"

    def make_refusal(self, client: str, reason: str) -> Overloaded:
        """Make the error for a refused request, with the seconds after which there should be room."""
        for level in self.levels:
            level.refusal_time = time.monotonic()
        seconds = max(1, min(MAX_RETRY_AFTER_SECONDS, math.ceil(self.estimate_wait(client))))
        return Overloaded(f"{reason}: try again in {seconds} s", seconds)


def make_deadline_error() -> TimedOut:
    """Make the error for a request whose deadline passed before it was computed."""
    return TimedOut("the request's time was over before it was computed: allow more, or ask for less")
