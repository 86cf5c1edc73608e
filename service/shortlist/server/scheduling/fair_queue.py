"""What waits for its turn: by priority, then fairly between clients, then fairly between a client's requests.

Nobody waits for the whole of another's large request: turns are of at most `QUANTUM` rows.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

from shortlist.core.queries import Result

from .tasks import Piece, Work

QUANTUM = 16  # rows of one request before another has its turn


@dataclass(eq=False)
class Waiting:
    """One request on its way: `taken` rows are computed or being computed, `parts` are there by first row.

    priority: lower goes first. client: who asks, for fairness.
    """

    work: Work
    future: asyncio.Future[Result]
    client: str = ""
    priority: int = 0
    taken: int = 0
    parts: dict[int, Any] = field(default_factory=dict)
    answered: int = 0
    since: float = field(default_factory=time.perf_counter)
    started: float = 0.0

    @property
    def left(self) -> int:
        """Rows that still wait."""
        return self.work.rows - self.taken


class Queue:
    """Requests with rows left, in turn."""

    def __init__(self) -> None:
        """Empty."""
        self.levels: dict[int, OrderedDict[str, deque[Waiting]]] = {}
        self.rows = 0

    def push(self, waiting: Waiting) -> None:
        """Line up."""
        self.line(waiting).append(waiting)
        self.rows += waiting.left

    def line(self, waiting: Waiting) -> deque[Waiting]:
        """The client's line at this priority."""
        return self.levels.setdefault(waiting.priority, OrderedDict()).setdefault(waiting.client, deque())

    def remove(self, waiting: Waiting) -> None:
        """Leave the line, if in it."""
        clients = self.levels.get(waiting.priority, OrderedDict())
        line = clients.get(waiting.client)
        if line is not None and waiting in line:
            line.remove(waiting)
            self.rows -= waiting.left
            self.tidy(waiting.priority, waiting.client)

    def take(self, rows: int) -> dict[Waiting, Piece]:
        """Up to `rows` rows, each request's in one piece; they count as taken."""
        pieces: dict[Waiting, Piece] = {}
        while rows > 0 and self.levels:
            waiting = self.next()
            count = min(QUANTUM, waiting.left, rows)
            first = pieces[waiting].start if waiting in pieces else waiting.taken
            waiting.taken += count
            pieces[waiting] = Piece(waiting.work, first, waiting.taken)
            self.rows -= count
            rows -= count
            if waiting.left:
                self.line(waiting).append(waiting)
        return pieces

    def next(self) -> Waiting:
        """Whose turn it is: out of the line, its client behind the others."""
        priority = min(self.levels)
        client, line = next(iter(self.levels[priority].items()))
        waiting = line.popleft()
        self.levels[priority].move_to_end(client)
        self.tidy(priority, client)
        return waiting

    def tidy(self, priority: int, client: str) -> None:
        """Forget a client, and a priority, of which nothing waits."""
        if not self.levels[priority][client]:
            del self.levels[priority][client]
        if not self.levels[priority]:
            del self.levels[priority]
