"""The one cache of the server: a bounded number of entries, forgotten in about the order of their last use."""

from __future__ import annotations

import threading
from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """At most `max_entries` values by key, in two generations; a hit in the recent one is a single lookup.

    An entry used again moves to the recent generation. When that is half of the bound, the older one, all of whose
    entries were not used meanwhile, is forgotten. Threads may share it: they change it one after the other, and a hit
    in the recent generation takes no lock.
    """

    __slots__ = ("lock", "max_entries", "older", "recent")

    def __init__(self, max_entries: int) -> None:
        self.max_entries = max_entries
        self.lock = threading.Lock()
        self.recent: dict[Key, Value] = {}
        self.older: dict[Key, Value] = {}

    def get(self, key: Key) -> Value | None:
        """The value at `key`, None where there is none."""
        value = self.recent.get(key)
        if value is None and (value := self.older.get(key)) is not None:
            self.put(key, value)
        return value

    def put(self, key: Key, value: Value) -> None:
        """Remember `value`, which is not None."""
        with self.lock:
            if len(self.recent) >= max(1, self.max_entries // 2):
                self.older, self.recent = self.recent if self.max_entries > 1 else {}, {}
            self.older.pop(key, None)
            self.recent[key] = value

    def __len__(self) -> int:
        return len(self.recent) + len(self.older)
