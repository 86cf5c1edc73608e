"""A connection: it bounds a request's head in time and size, and its refusals are sentences in JSON."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from uvicorn import Config

from .fast_path import FastPath
from .uvicorn_protocol import UvicornProtocol, cancel_timer

MAX_HEAD_BYTES = 64 << 10
MALFORMED_REQUEST = "the request is not HTTP/1.1: check its request line, headers and Content-Length"
HEAD_TOO_LARGE = (
    f"the request line and headers are over the limit of {MAX_HEAD_BYTES} bytes: send fewer or shorter headers"
)
STATUS_BY_SENTENCE = {MALFORMED_REQUEST: "400 Bad Request", HEAD_TOO_LARGE: "431 Request Header Fields Too Large"}


class Connection(UvicornProtocol):
    """One connection.

    head_bytes: bytes since the last head was complete, without bodies. in_body: a head was complete, its body is not.
    head_timer: closes the connection when a head does not come. read_timer: when a response is not read.
    """

    head_bytes = 0
    in_body = False
    head_timer: asyncio.TimerHandle | None = None
    read_timer: asyncio.TimerHandle | None = None

    def __init__(self, config: Config, *args: Any, patience: float, **options: Any) -> None:
        """patience: seconds for a head, from its first byte, and for the client to read a response."""
        super().__init__(config, *args, **options)
        self.patience = patience

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a first request as long as for a later one."""
        super().connection_made(transport)
        self.start_head_timer(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        self.stop_head_timer()
        self.stop_read_timer()
        self.drop_requests()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give a client that reads its response slower than it was written some time, then cut it off."""
        super().pause_writing()
        self.read_timer = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        self.stop_read_timer()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse more of a head or of a body."""
        if self.head_bytes == 0:
            self.stop_head_timer()
        self.head_bytes += len(data)
        super().data_received(data)
        if self.head_bytes > MAX_HEAD_BYTES:
            self.refuse(HEAD_TOO_LARGE)
        elif self.head_bytes and self.head_timer is None and not self.in_body:
            self.start_head_timer(self.patience)

    def on_headers_complete(self) -> None:
        """Start serving the request; how long its body may take is the service's to judge."""
        self.restart_head()
        self.in_body = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.restart_head()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.restart_head()
        self.in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a malformed request. `msg` is uvicorn's own text for it."""
        del msg
        self.refuse(MALFORMED_REQUEST)

    def refuse(self, sentence: str) -> None:
        """Send an error and close the connection; nobody will read what is still computed."""
        if self.transport.is_closing():
            return
        content = orjson.dumps({"error": sentence})
        head = f"HTTP/1.1 {STATUS_BY_SENTENCE[sentence]}\r\ncontent-type: application/json\r\n"
        end = f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        self.transport.write((head + end).encode() + content)
        self.transport.close()
        self.drop_requests()

    def restart_head(self) -> None:
        """Count a head's bytes anew: what arrived last belonged to no incomplete head."""
        self.head_bytes = 0
        self.stop_head_timer()

    def start_head_timer(self, seconds: float) -> None:
        """Close the connection unless a head is complete in time."""
        self.head_timer = self.loop.call_later(seconds, self.transport.close)

    def stop_head_timer(self) -> None:
        cancel_timer(self.head_timer)
        self.head_timer = None

    def stop_read_timer(self) -> None:
        """Stop waiting for the client to read."""
        cancel_timer(self.read_timer)
        self.read_timer = None


class FastPathConnection(Connection):
    """A connection whose small requests are tried by the fast path first.

    between_requests: the parser is before the first byte of a request. request_count: requests of which a first
    byte arrived.
    """

    between_requests = True
    request_count = 0

    def __init__(self, config: Config, *args: Any, fast_path: FastPath, **options: Any) -> None:
        super().__init__(config, *args, **options)
        self.fast_path = fast_path
        self.is_usual = not config.access_log and config.limit_concurrency is None  # else uvicorn has more to do

    def data_received(self, data: bytes) -> None:
        """Respond by the fast path, or let uvicorn parse; what it parses as one whole request is learned."""
        if self.between_requests and self.is_usual and self.idle:
            response = self.fast_path.respond(data, self.default_headers)
            if response is not None:
                self.write_response(response)
                return
        starts_request, before = self.between_requests, self.request_count
        super().data_received(data)
        is_one_request = starts_request and self.between_requests and self.request_count == before + 1
        if is_one_request and data.startswith(b"POST ") and self.scope["http_version"] == "1.1" and self.keeps_open:
            self.fast_path.learn(data, self.scope["path"], self.headers)

    def on_message_begin(self) -> None:
        self.between_requests = False
        self.request_count += 1
        super().on_message_begin()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.between_requests = True
