"""The one cache of the server: a bounded number of entries, forgotten in about the order of their last use."""

from __future__ import annotations

from typing import Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class BoundedCache(Generic[Key, Value]):
    """At most `max_entries` values by key, in two generations; a hit in the recent one is a single lookup.

    An entry used again moves to the recent generation. When that is half of the bound, the older one, all of whose
    entries were not used meanwhile, is forgotten. Threads may share it.
    """

    __slots__ = ("max_recent", "older", "recent")

    def __init__(self, max_entries: int) -> None:
        self.max_recent = max(1, max_entries // 2)
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
        if len(self.recent) >= self.max_recent:
            self.older, self.recent = self.recent, {}
        self.older.pop(key, None)
        self.recent[key] = value

    def __len__(self) -> int:
        return len(self.recent) + len(self.older)
