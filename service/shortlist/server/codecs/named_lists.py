"""Lists of ids that clients register by a name once, and then refer to: requests need not carry them again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shortlist.core.checks import cut
from shortlist.core.row_lists import NamedLists, RowLists
from shortlist.errors import BadInput, NotFound, TooLarge

MAX_NAME_CHARS = 128


@dataclass(slots=True)
class Registration:
    """A table of lists, and when it was registered and last used, in seconds of the clock."""

    lists: RowLists
    start: float
    last_use: float


class ListRegistry:
    """The tables of lists that are registered, by name: bounded in count, bytes and age. Threads may share it.

    A table that no request has used for `max_idle_seconds` is forgotten.
    """

    def __init__(
        self, max_tables: int, max_bytes: int, max_idle_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.max_tables, self.max_bytes, self.max_idle_seconds = max_tables, max_bytes, max_idle_seconds
        self.clock = clock
        self.tables: dict[str, Registration] = {}
        self.lock = threading.Lock()

    def register(self, name: str, lists: RowLists) -> None:
        """Know `lists` by `name` from now on, in place of what that named before; raises BadInput, TooLarge."""
        if not 0 < len(name) <= MAX_NAME_CHARS or not name.isprintable():
            raise BadInput(f"a name of lists has 1 to {MAX_NAME_CHARS} printable characters, not '{cut(name)}'")
        now = self.clock()
        new = Registration(lists, now, now)
        with self.lock:
            self.forget_idle_tables()
            others = [each for other, each in self.tables.items() if other != name]
            size = lists.nbytes + sum(each.lists.nbytes for each in others)
            if len(others) >= self.max_tables:
                raise TooLarge(f"{self.max_tables} tables of lists are registered, as many as may be: delete some")
            if size > self.max_bytes:
                raise TooLarge(f"lists would take {size} bytes, over the limit of {self.max_bytes}: delete some")
            self.tables[name] = new

    def get(self, name: str) -> RowLists:
        """The table of that name; raises NotFound."""
        with self.lock:
            self.forget_idle_tables()
            registration = self.tables.get(name)
            if registration is None:
                raise make_missing_error(name)
            registration.last_use = self.clock()
            return registration.lists

    def resolve(self, named: NamedLists) -> RowLists:
        """The lists that a request refers to; raises NotFound, BadInput."""
        lists = self.get(named.name)
        return lists if named.numbers is None else lists.for_rows(named.numbers)

    def delete(self, name: str) -> None:
        """Forget the table of that name; raises NotFound."""
        with self.lock:
            if self.tables.pop(name, None) is None:
                raise make_missing_error(name)

    def describe(self) -> list[dict[str, Any]]:
        """Every table: name, number of lists and ids, bytes, and seconds since it was registered and last used."""
        now = self.clock()
        with self.lock:
            self.forget_idle_tables()
            return [
                {
                    "name": name,
                    "lists": len(each.lists.offsets) - 1,
                    "ids": int(each.lists.ids.size),
                    "bytes": each.lists.nbytes,
                    "age_seconds": round(now - each.start, 3),
                    "idle_seconds": round(now - each.last_use, 3),
                }
                for name, each in self.tables.items()
            ]

    def forget_idle_tables(self) -> None:
        """Forget what was not used for too long."""
        oldest = self.clock() - self.max_idle_seconds
        self.tables = {name: each for name, each in self.tables.items() if each.last_use >= oldest}


def make_missing_error(name: str) -> NotFound:
    """The error for lists that are not registered, or no more."""
    return NotFound(f"no lists are registered as '{cut(name)}', or not any more: register them again")
