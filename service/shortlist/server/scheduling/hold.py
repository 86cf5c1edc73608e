"""The room that one request takes, given back whatever happens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import TracebackType

from .admission import Admission


class Hold:
    """The room that one request of a client takes in a server; a context manager that gives all of it back.

    Bytes of the body and of the response are held until the response is written, rows until it is encoded.
    """

    __slots__ = ("bytes", "client", "model", "rows", "server")

    def __init__(self, server: Admission, client: str) -> None:
        self.server, self.client = server, client
        self.model: Admission | None = None
        self.bytes = self.rows = 0

    def __enter__(self) -> Hold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release_rows()
        self.resize_bytes(0)

    def check_bytes(self, length: int) -> None:
        """Raise Overloaded where `length` more bytes are too many."""
        self.server.check_bytes(length, self.bytes, self.client)

    def take_bytes(self, length: int) -> None:
        """Hold `length` more bytes that arrived; raises Overloaded."""
        self.server.take_bytes(length, self.bytes, self.client)
        self.bytes += length

    @contextlib.contextmanager
    def extra_bytes(self, length: int) -> Iterator[None]:
        """Hold `length` more bytes while the context is open; raises Overloaded."""
        self.take_bytes(length)
        try:
            yield
        finally:
            self.resize_bytes(self.bytes - length)

    def take_rows(self, model: Admission, rows: int, seconds: float) -> None:
        """Hold the rows of a request to `model` that has so many seconds left; raises Overloaded, TimedOut."""
        model.take_rows(rows, seconds, self.client)
        self.model, self.rows = model, rows

    def release_rows(self) -> None:
        """Give back the rows: they are computed and encoded, or never will be."""
        if self.model is not None:
            self.model.release_rows(self.rows, self.client)
            self.model, self.rows = None, 0

    def resize_bytes(self, length: int) -> None:
        """Hold `length` bytes from now on, which is never refused."""
        if length != self.bytes:
            self.server.add_bytes(length - self.bytes, self.client)
            self.bytes = length

    def keep_response(self, length: int) -> None:
        """Hold a response of `length` bytes in place of the rows and of the body."""
        self.release_rows()
        self.resize_bytes(length)
