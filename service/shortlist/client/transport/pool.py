"""Connections that no request uses now."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from typing import Generic, Protocol, TypeVar

MAX_IDLE_CONNECTIONS = 100
MAX_IDLE_SECONDS = 30.0  # after which a connection is not used again: the server may be about to close it


class PooledConnection(Protocol):
    """A connection that another request may take. idle_since: by the monotonic clock."""

    idle_since: float

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent."""

    def close(self) -> None:
        """Close it for good."""


C = TypeVar("C", bound=PooledConnection)


class Pool(Generic[C]):
    """Idle connections; the one used last is taken first, so that those not needed grow old and are closed.

    Threads share it without a lock, since a deque is changed at once. In a forked process it is empty: what was open
    is its parent's.
    """

    def __init__(self) -> None:
        self.connections: deque[C] = deque()
        self.process_id, self.is_closed = os.getpid(), False

    def take(self, *, is_safe: bool = True) -> C | None:
        """A connection to use, None where there is none; raises RuntimeError once the pool is closed.

        is_safe: whether the request may be sent again; one that may not is given none, since the server may have
        closed it.
        """
        if self.is_closed:
            raise RuntimeError("the client is closed: make a new one")
        if self.process_id != os.getpid():
            self.clear()
            self.process_id = os.getpid()
        oldest = time.monotonic() - MAX_IDLE_SECONDS
        while is_safe and (connection := self.pop()) is not None:
            if connection.idle_since > oldest and connection.is_open:
                return connection
            connection.close()
        return None

    def pop(self) -> C | None:
        """The connection used last."""
        try:
            return self.connections.pop()
        except IndexError:
            return None

    def put(self, connection: C) -> None:
        """Keep a connection for the next request; the oldest is closed where it is too old, or one too many."""
        connection.idle_since = time.monotonic()
        self.connections.append(connection)
        if self.is_closed:
            self.clear()
        with contextlib.suppress(IndexError):  # where another thread took it
            oldest = self.connections[0].idle_since
            if len(self.connections) > MAX_IDLE_CONNECTIONS or connection.idle_since - oldest > MAX_IDLE_SECONDS:
                self.connections.popleft().close()

    def clear(self) -> None:
        """Close all connections."""
        while (connection := self.pop()) is not None:
            connection.close()

    def close(self) -> None:
        """Close all connections, and those that are put from now on."""
        self.is_closed = True
        self.clear()
