"""A connection: what it reads, holds and waits for is bounded, and its refusals are sentences in JSON."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn import Config

from shortlist.errors import ShortlistError
from shortlist.server.access.clients import name_address
from shortlist.server.messages.responses import make_error_response

from .connection_limits import ConnectionLimits
from .head_rules import MAX_HEAD_BYTES, MAX_HEADERS, HeadTooLarge, check_head, join_forwarded
from .uvicorn_protocol import UvicornProtocol, cancel_timer, write_head

SLICE_BYTES = 4096  # that the parser reads at a time outside of bodies: some 150 of the smallest requests
WAITING_REQUEST_BYTES = 4096  # of memory that a request takes while it waits for those before it, without its body
REST_SECONDS = 0.05  # between requests of one pipeline while others wait for theirs to be computed
REFUSED_SECONDS = 1.0  # that a connection too many, which counts nowhere, stays open: TLS waits for its client to close
FIRST_PROBE_SECONDS = 0.1  # until a client that has closed its side is probed again; then twice as long
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(UvicornProtocol):
    """One connection.

    address: of the client. client_name: the name of that. unparsed: what was read and waits for the answers to
    requests before it. head_bytes: bytes since the last head was complete, without bodies. between_requests: the
    parser is before the first byte of a request. in_body: a head was complete, its body is not. body_left: bytes that
    are still announced of it. is_counted: it is one of the open connections. is_held: nothing is read until requests
    are answered. refusal: what is sent once they are. held_bytes: of memory. message_timer: closes the connection when
    the rest of a message does not come, or it is one too many and its client does not leave. read_timer: when a
    response is not read. probe_timer: probes a client that has closed its side.
    """

    address = client_name = ""
    unparsed = b""
    head_bytes = body_left = held_bytes = 0
    between_requests = True
    in_body = is_counted = is_held = False
    refusal: ShortlistError | None = None
    message_timer: asyncio.TimerHandle | None = None
    read_timer: asyncio.TimerHandle | None = None
    probe_timer: asyncio.TimerHandle | None = None

    def __init__(self, config: Config, *args: Any, limits: ConnectionLimits, patience: float, **options: Any) -> None:
        """patience: seconds for the rest of a message, and for the client to read a response."""
        super().__init__(config, *args, **options)
        self.limits, self.patience = limits, patience

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a first request as for a later one; refuse one connection too many."""
        super().connection_made(transport)
        self.address = self.client[0] if self.client else ""
        self.client_name = name_address(self.address)
        try:
            self.limits.open(self.client_name)
        except ShortlistError as error:
            self.refuse(error)
            self.message_timer = self.loop.call_later(REFUSED_SECONDS, self.transport.abort)
            return
        self.is_counted = True
        self.start_idle_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self.message_timer, self.read_timer, self.probe_timer):
            cancel_timer(timer)
        self.stop_idle_timer()  # which uvicorn lets run after a reset: it would hold the connection's memory
        self.drop_requests()
        self.hold_bytes(0)
        if self.is_counted:
            self.limits.close(self.client_name)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Give a client that reads its response slower than it was written some time, then cut it off."""
        super().pause_writing()
        self.read_timer = self.loop.call_later(self.patience, self.transport.abort)
        self.note_memory()

    def resume_writing(self) -> None:
        cancel_timer(self.read_timer)
        super().resume_writing()
        self.note_memory()

    def data_received(self, data: bytes) -> None:
        """Parse more of a head or of a body."""
        self.stop_idle_timer()
        if self.refusal is None:
            self.unparsed += data
            self.parse_unparsed()

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn's knows one answer alone
        """Answer what the client asked before it closed its side; returns whether the connection stays open for that.

        TLS knows no such state.
        """
        if self.probe_timer is not None:
            return True  # that is known
        if self.scheme == "https" or not self.drop_unfinished():
            return False
        self.hold_reading()
        if self.refusal is None:
            self.close_after_responses()
        self.probe(FIRST_PROBE_SECONDS)
        return True

    def probe(self, seconds: float) -> None:
        """Write an interim response: a client that is gone answers with a reset, which the next one runs into."""
        if self.is_serving and not self.transport.is_closing():
            if not self.has_started_response and self.scope["http_version"] == "1.1":
                self.transport.write(CONTINUE)
            self.probe_timer = self.loop.call_later(seconds, self.probe, 2 * seconds)

    def parse_unparsed(self) -> None:
        """Parse what was read, until a request has to wait for those before it: then nothing more is read either."""
        data, start = self.unparsed, 0
        try:
            while start < len(data) and not self.has_waiting and not self.transport.is_closing():
                stop = start + max(SLICE_BYTES, self.body_left)
                self.head_bytes += min(stop, len(data)) - start  # until a callback counts anew
                self.parse(data[start:stop])
                start = stop
                if self.head_bytes > MAX_HEAD_BYTES or (self.headers and len(self.headers) > MAX_HEADERS):
                    raise HeadTooLarge
            self.unparsed = data[start:]
            if self.has_waiting:
                self.limits.check_room(self.client_name, self.count_bytes() - self.held_bytes)
        except ShortlistError as error:
            self.refuse(error)
            return
        if self.has_waiting:
            self.hold_reading()
            self.is_held = True
        elif self.is_held:
            self.go_on_reading()
            self.is_held = False
        if self.head_bytes > SLICE_BYTES or self.is_held or self.held_bytes:
            self.note_memory()
        self.watch()

    def watch(self) -> None:
        """Start the timer of what the client owes, unless the server owes it an answer."""
        if self.is_serving:
            return
        if not self.between_requests or self.head_bytes:
            self.stop_idle_timer()
            if self.message_timer is None:
                self.message_timer = self.loop.call_later(self.patience, self.transport.close)
        else:
            self.start_idle_timer()

    def on_message_begin(self) -> None:
        self.between_requests = False
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start serving the request; how long its body may take is the service's to judge."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self.body_left = check_head(method, version, self.headers)
        if self.parser.should_upgrade():
            return  # it is parsed again, as if it did not ask for that
        self.end_head()
        join_forwarded(self.headers)
        self.in_body = True
        super().on_headers_complete()
        self.headers = []  # the trailers' place, which nobody reads: they are no headers

    def on_body(self, body: bytes) -> None:
        self.head_bytes = 0
        self.body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        self.end_head()
        self.in_body, self.between_requests, self.body_left = False, True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with what has waited for the response; a body that is not whole yet is discarded as it comes."""
        self.rest_seconds = REST_SECONDS if self.has_waiting and self.limits.has_work else 0.0
        super().on_response_complete()
        if self.transport.is_closing() or self.has_waiting:
            return
        if self.refusal is not None:
            if not self.is_serving:
                self.send_refusal(self.refusal)
        elif self.is_held:
            self.parse_unparsed()
        else:
            self.watch()

    def refuse(self, error: ShortlistError) -> None:
        """Send an error, after the answers to the requests before it, and close the connection."""
        if self.transport.is_closing():
            return
        self.limits.note_refusal(error, self.client_name)
        self.unparsed, self.refusal = b"", error
        was_answered = self.in_body and not self.has_waiting and self.has_started_response
        if self.drop_unfinished():
            self.hold_reading()  # for good
        elif was_answered:
            self.transport.close()
        else:
            self.send_refusal(error)

    def send_refusal(self, error: ShortlistError) -> None:
        """Send an error and close the connection; nobody will read what is still computed."""
        response = make_error_response(error)
        self.transport.write(write_head(response.status, [*response.headers, (b"connection", b"close")]))
        self.transport.write(response.content)
        self.transport.close()
        self.drop_requests()

    def drop_unfinished(self) -> bool:
        """Drop a request whose body has not come; returns whether whole ones wait for their answers."""
        if self.in_body:
            if not self.has_waiting:
                return False
            self.drop_latest()
            self.in_body = False
        return self.is_serving

    def note_memory(self) -> None:
        """Hold what the connection takes in memory."""
        self.hold_bytes(self.count_bytes())

    def count_bytes(self) -> int:
        """What is not parsed yet, requests that wait, a long head, and what the client does not read."""
        head_bytes = self.head_bytes if self.head_bytes > SLICE_BYTES else 0
        waiting_bytes = WAITING_REQUEST_BYTES * self.waiting_requests
        return len(self.unparsed) + waiting_bytes + head_bytes + self.unsent_bytes

    def hold_bytes(self, size: int) -> None:
        """Hold so many bytes from now on."""
        if size != self.held_bytes:
            self.limits.hold(self.client_name, size - self.held_bytes)
            self.held_bytes = size

    def end_head(self) -> None:
        """Wait for no head, nor for the rest of a message: what arrived last belonged to none that is incomplete."""
        self.head_bytes = 0
        if self.message_timer is not None:
            self.message_timer.cancel()
            self.message_timer = None
