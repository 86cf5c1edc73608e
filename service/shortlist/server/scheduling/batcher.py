"""Gathers what arrives while a batch is computed; an idle model answers at once.

All state belongs to the event loop; only `computed` runs in a thread. One batch of a model is computed at a time, so
that what it costs is known and nothing waits for a timer: the next batch starts when the last one is done.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor
from typing import Any

from shortlist.core.queries import Result
from shortlist.errors import TimedOut

from .fair_queue import Queue, Waiting
from .tasks import Piece, Work

REMEMBER = 0.9  # weight of the past in the measured speed
OUTLIER = 2.0  # a longer time, of this many times what was expected, counts as so much: the system was busy
FEW = 4  # rows; more of them at once take less time each, and say little of one


Notify = Callable[[int, int, float], None]  # rows computed together, requests that they came from, seconds it took


def nobody(rows: int, requests: int, seconds: float) -> None:
    """Hears of batches where nobody else does."""


class Batcher:
    """One model's requests."""

    def __init__(
        self,
        pool: Executor,
        batch_rows: int,
        delay: float = 0.0,
        inline: float = 0.0,
        notify: Notify = nobody,
    ) -> None:
        """batch_rows: most in one batch. delay: seconds that an idle model waits for company; 0: none.

        inline: what should take at most so many seconds is computed in the event loop; a thread costs more.
        """
        self.pool, self.batch_rows, self.delay, self.inline, self.notify = pool, batch_rows, delay, inline, notify
        self.queue = Queue()
        self.busy = False
        self.row_seconds: dict[Hashable, float] = {}  # by kind of work, as measured
        self.timer: asyncio.TimerHandle | None = None

    def small(self, work: Work, rows: int) -> bool:
        """Whether so many rows should be computed in the event loop; not, where nothing like it was measured yet."""
        return not work.alone and self.row_seconds.get(work.kind, math.inf) * rows <= self.inline

    def at_once(self, work: Work) -> bool:
        """Whether `answer_now` should be asked: nothing runs or waits, and the work is small."""
        return not self.busy and not self.queue.rows and not self.delay and self.small(work, work.rows)

    def answer_now(self, work: Work) -> Result:
        """Compute on the spot, in the event loop: for small work while idle. Raises ShortlistError."""
        started = time.perf_counter()
        result = work.answer()
        seconds = time.perf_counter() - started
        if work.rows:
            self.remember(work.kind, work.rows, seconds)
        self.notify(work.rows, 1, seconds)
        return result

    def submit(self, work: Work, client: str = "", priority: int = 0) -> Waiting:
        """Line up; `future` of what is returned becomes the answer. At least one row."""
        waiting = Waiting(work, asyncio.get_running_loop().create_future(), client, priority)
        self.queue.push(waiting)
        self.consider()
        return waiting

    def drop(self, waiting: Waiting, error: Exception | None = None) -> None:
        """Compute no more of it; `error` is its answer, if anybody still waits."""
        self.queue.remove(waiting)
        if not waiting.future.done():
            if error is None:
                waiting.future.cancel()
            else:
                waiting.future.set_exception(error)

    def expire(self, waiting: Waiting) -> None:
        """The request's time is over."""
        self.drop(waiting, TimedOut("the request's time was over before it was computed: allow more, or ask for less"))

    def consider(self) -> None:
        """Start a batch if none runs and something waits; with a delay, once it is over or the batch is full."""
        if self.busy or not self.queue.rows:
            return
        if self.delay and self.queue.rows < self.batch_rows:
            if self.timer is None:
                self.timer = asyncio.get_running_loop().call_later(self.delay, self.start)
            return
        self.start()

    def start(self) -> None:
        """Compute what waits, in a thread."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if self.busy or not self.queue.rows:
            return
        taken = self.queue.take(self.batch_rows)
        now = time.perf_counter()
        for waiting in taken:
            waiting.started = waiting.started or now
        pieces = list(taken.values())
        rows = sum(piece.stop - piece.start for piece in pieces)
        self.busy = True
        if all(self.small(piece.work, rows) for piece in pieces):
            self.hand_out_all(taken, computed(pieces))
            return
        running = asyncio.get_running_loop().run_in_executor(self.pool, computed, pieces)
        running.add_done_callback(lambda done: self.done(taken, done))

    def done(self, taken: dict[Waiting, Piece], running: asyncio.Future[tuple[list[Any], float]]) -> None:
        """Hand the answers out, then go on."""
        if running.cancelled():  # the server stops
            return
        error = running.exception()
        if error is None:
            self.hand_out_all(taken, running.result())
            return
        self.busy = False  # not foreseen; nobody must wait for ever if it comes
        for waiting in taken:
            self.drop(waiting, RuntimeError(f"a batch failed: {error}"))
        self.consider()

    def hand_out_all(self, taken: dict[Waiting, Piece], found: tuple[list[Any], float]) -> None:
        """A batch is done."""
        self.busy = False
        parts, seconds = found
        self.measured(list(taken.values()), len(taken), seconds)
        for (waiting, piece), part in zip(taken.items(), parts, strict=True):
            self.hand_out(waiting, piece, part)
        asyncio.get_running_loop().call_soon(self.consider)  # not from here: a thousand small batches would be nested

    def hand_out(self, waiting: Waiting, piece: Piece, part: Any) -> None:
        """One part of an answer, and the answer itself with the last."""
        if waiting.future.done():
            return
        if isinstance(part, Exception):
            self.drop(waiting, part)
            return
        waiting.parts[piece.start] = part
        waiting.answered += piece.stop - piece.start
        if waiting.answered == waiting.work.rows:
            try:
                waiting.future.set_result(waiting.work.finish([waiting.parts[i] for i in sorted(waiting.parts)]))
            except Exception as error:  # handed to the one who asked
                waiting.future.set_exception(error)

    def measured(self, pieces: Sequence[Piece], requests: int, seconds: float) -> None:
        """Remember how long a row takes by each plan, and tell of the batch."""
        rows = sum(piece.stop - piece.start for piece in pieces)
        kinds = {piece.work.kind for piece in pieces}
        if len(kinds) == 1:
            self.remember(kinds.pop(), rows, seconds)
        self.notify(rows, requests, seconds)

    def remember(self, kind: Hashable, rows: int, seconds: float) -> None:
        """How long a row takes by a kind of work, as far as so many rows tell."""
        new = seconds / rows
        old = self.row_seconds.get(kind, new)
        if rows <= FEW or kind not in self.row_seconds:
            self.row_seconds[kind] = REMEMBER * old + (1 - REMEMBER) * min(new, OUTLIER * old)


def computed(pieces: list[Piece]) -> tuple[list[Any], float]:
    """The parts of the answers for `pieces`, in order, an exception where one failed; and the seconds it took."""
    started = time.perf_counter()
    groups: dict[Hashable, list[Piece]] = {}
    for piece in pieces:
        groups.setdefault(piece.group, []).append(piece)
    found: dict[Piece, Any] = {}
    for group in groups.values():
        found.update(zip(group, together(group), strict=True))
    return [found[piece] for piece in pieces], time.perf_counter() - started


def together(pieces: list[Piece]) -> list[Any]:
    """The parts of one group; where it fails, each piece by itself, so that nobody fails for another's rows."""
    try:
        return pieces[0].work.together(pieces)
    except Exception as error:  # handed to the one who asked
        return [error] if len(pieces) == 1 else [together([piece])[0] for piece in pieces]
