"""uvicorn's HTTP, whose refusals are sentences in JSON as every other failure, and which bounds a request's head."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from uvicorn import Config
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from .gateway import Gateway

MALFORMED = "the request is not HTTP/1.1: check its request line, headers and Content-Length"
HEAD_BYTES = 64 << 10
LONG = f"the request line and headers are over the limit of {HEAD_BYTES} bytes: send fewer or shorter headers"
STATUS_LINES = {MALFORMED: "400 Bad Request", LONG: "431 Request Header Fields Too Large"}


class Protocol(HttpToolsProtocol):
    """One connection. head: bytes since the last head was complete, without bodies. in_body: between head and end."""

    head = 0
    in_body = False
    timer: asyncio.TimerHandle | None = None
    unread: asyncio.TimerHandle | None = None
    running: RequestResponseCycle | None = None

    def __init__(self, config: Config, *args: Any, patience: float, **options: Any) -> None:
        """patience: seconds for a head, from its first byte, and for reading an answer."""
        super().__init__(config, *args, **options)
        self.patience = patience

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a first request as long as for a later one."""
        super().connection_made(transport)
        self.start(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self.stop()
        self.read()
        self.forget()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client does not read its answer as fast as it was written; one that never does is cut off."""
        super().pause_writing()
        self.unread = self.loop.call_later(self.patience, self.transport.abort)

    def resume_writing(self) -> None:
        """It read nearly all."""
        self.read()
        super().resume_writing()

    def read(self) -> None:
        """Wait for no reader any more."""
        if self.unread is not None:
            self.unread.cancel()
            self.unread = None

    def data_received(self, data: bytes) -> None:
        """More of a head or of a body."""
        if self.head == 0:
            self.stop()
        self.head += len(data)
        super().data_received(data)
        if self.head > HEAD_BYTES:
            self.refuse(LONG)
        elif self.head and self.timer is None and not self.in_body:
            self.start(self.patience)

    def on_headers_complete(self) -> None:
        """The head is complete; how long its body may take is the service's to judge."""
        self.heard()
        self.in_body = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """What came was no head."""
        self.heard()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The next head may come."""
        self.heard()
        self.in_body = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer a malformed request, and hang up. `msg` is uvicorn's own text for it."""
        del msg
        self.refuse(MALFORMED)

    def refuse(self, sentence: str) -> None:
        """Say why, and hang up: what is still computed has nobody to be sent to."""
        if self.transport.is_closing():
            return
        content = orjson.dumps({"error": sentence})
        head = f"HTTP/1.1 {STATUS_LINES[sentence]}\r\ncontent-type: application/json\r\n"
        end = f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        self.transport.write((head + end).encode() + content)
        self.transport.close()
        self.forget()

    def forget(self) -> None:
        """Nobody hears the answer that is computed now, nor those that wait behind it."""
        self.pipeline.clear()
        if self.running is not None:
            self.running.disconnected = True
            self.running.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.running = cycle  # `cycle` of uvicorn is the latest one, which waits behind it when requests are pipelined
        super()._start_asgi_task(cycle, app)

    def heard(self) -> None:
        """A head, or a piece of a body."""
        self.head = 0
        self.stop()

    def start(self, seconds: float) -> None:
        """Wait for a head, or the rest of one."""
        self.timer = self.loop.call_later(seconds, self.transport.close)

    def stop(self) -> None:
        """It came."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class StraightProtocol(Protocol):
    """The same, with a straight way for small questions. between: the parser is before the first byte of a request."""

    between = True
    seen = 0  # requests of which a first byte came
    answered = 0.0  # when the last straight answer was given, by the loop's clock

    def __init__(self, config: Config, *args: Any, gateway: Gateway, **options: Any) -> None:
        """gateway: whose questions these are."""
        super().__init__(config, *args, **options)
        self.gateway, self.straight = gateway, gateway.straight
        self.usual = not config.access_log and config.limit_concurrency is None

    def data_received(self, data: bytes) -> None:
        """Answer, or go uvicorn's way; what it parses as one whole question may be answered the next time."""
        if self.timeout_keep_alive_task is not None and self.between and not self.flow.write_paused and self.usual:
            answer = self.straight.answer(data, self.server_state.default_headers)
            if answer is not None:
                self.transport.write(answer)
                self.server_state.total_requests += 1
                self.answered = self.loop.time()
                return
        fresh, seen = self.between, self.seen
        super().data_received(data)
        if fresh and self.between and self.seen == seen + 1 and data.startswith(b"POST "):
            self.learn(data)

    def learn(self, data: bytes) -> None:
        """`data` was one whole request."""
        endpoint = self.gateway.endpoints.get(self.scope["path"])
        if endpoint is not None and self.scope["http_version"] == "1.1" and self.cycle.keep_alive:
            self.straight.learn(data, endpoint, self.headers)

    def on_message_begin(self) -> None:
        """A first byte."""
        self.between = False
        self.seen += 1
        super().on_message_begin()

    def on_message_complete(self) -> None:
        """A last one."""
        super().on_message_complete()
        self.between = True

    def timeout_keep_alive_handler(self) -> None:
        """Close what was idle for so long: a straight answer does not set the timer anew, but says when it was."""
        left = self.answered + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()
