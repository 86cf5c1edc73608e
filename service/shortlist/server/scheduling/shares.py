"""Shares of one thing that is bounded and that several clients hold, such as the rows of a server.

The rule is that of shared buffers in network switches (dynamic thresholds): a client may hold at most so many times
what nobody holds. One client alone gets three quarters of it all, two that want everything 3/7 each, and so on: however
much others hold, some is left for whoever comes next.
"""

from __future__ import annotations

MAX_TIMES_FREE = 3  # that a client may hold of what is free


class Shares:
    """What each client holds. limit: of all together. held: by all together."""

    __slots__ = ("by_client", "held", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.by_client: dict[str, int] = {}

    def has_room(self, client: str, amount: int) -> bool:
        """Whether `amount` more would leave enough for others."""
        free = self.limit - self.held - amount
        return free >= 0 and self.by_client.get(client, 0) + amount <= MAX_TIMES_FREE * free

    def is_full(self, amount: int) -> bool:
        """Whether `amount` more are over the limit, whoever holds them."""
        return self.held + amount > self.limit

    def get(self, client: str) -> int:
        """What a client holds."""
        return self.by_client.get(client, 0)

    def count_clients(self, client: str) -> int:
        """How many clients hold something, `client` counted in any case."""
        return len(self.by_client) + (client not in self.by_client)

    def add(self, client: str, amount: int) -> None:
        """Note that a client holds `amount` more, or less where that is negative."""
        self.held += amount
        left = self.by_client.get(client, 0) + amount
        if left:
            self.by_client[client] = left
        else:
            self.by_client.pop(client, None)
