"""A connection whose small requests are tried by the fast path first."""

from __future__ import annotations

from typing import Any

from uvicorn import Config

from .connection import Connection
from .fast_path import FastPath


class FastConnection(Connection):
    """One connection. request_count: requests of which a first byte arrived."""

    request_count = 0

    def __init__(self, config: Config, *args: Any, fast_path: FastPath, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.fast_path = fast_path
        self.is_usual = not config.access_log and config.limit_concurrency is None  # else uvicorn has more to do

    def data_received(self, data: bytes) -> None:
        """Respond by the fast path, or let uvicorn parse; what it parses as one whole request is learned."""
        if self.between_requests and self.is_usual and self.idle:
            response = self.fast_path.respond(data, self.address, self.default_headers)
            if response is not None:
                self.write_response(response)
                if self.limits.is_crowded:
                    self.rest()
                return
        starts_request, before = self.between_requests, self.request_count
        super().data_received(data)
        is_one_request = starts_request and self.between_requests and self.request_count == before + 1
        if is_one_request and data.startswith(b"POST ") and self.scope["http_version"] == "1.1" and self.keeps_open:
            self.fast_path.learn(data, self.scope["path"], list(self.scope["headers"]))

    def rest(self) -> None:
        """Read no more before the next round of the event loop.

        As long as `POLLED_AT_ONCE` connections have something to say, libuv asks for more of them, 48 times in a row,
        and nothing else of the server goes on meanwhile, were it a probe.
        """
        self.hold_reading()
        self.loop.call_soon(self.end_rest)

    def end_rest(self) -> None:
        """Read again."""
        if not self.transport.is_closing():
            self.go_on_reading()

    def on_message_begin(self) -> None:
        self.request_count += 1
        super().on_message_begin()
