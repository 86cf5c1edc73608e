"""The one module that uses what uvicorn does not document: read it when uvicorn is upgraded.

Of `uvicorn.protocols.http.httptools_impl`, as of uvicorn 0.54:

- `HttpToolsProtocol`, its `data_received` and its parser's callbacks, which `connection` overrides, its `parser`,
  `scope`, `url`, `headers`, `scheme`, `client`, `loop` and `timeout_keep_alive`: they show heads and bodies as they
  arrive, which bounds how long and how large a head may be, how much waits behind a request that is served, and lets a
  request that asks for another protocol be parsed again.
- `cycle`, `pipeline`, `_start_asgi_task`: the request that is served and those that wait behind it, to drop them all
  when nobody will read their responses, and to let those behind wait longer.
- `RequestResponseCycle`, its `transport` and `response_started`: what a response is written to, its head first, to send
  both together.
- `flow`, with `read_paused` and `write_paused`: whether uvicorn would go on reading, and whether it waits to write.
- `timeout_keep_alive_task`, `timeout_keep_alive_handler`, `_unset_keepalive_if_required`: the timer of an idle
  connection.
- `server_state`: the headers that every response begins with, and the count of requests.
- `STATUS_LINE`: the first line of a response for each status.

Of `uvicorn.Server`:

- `capture_signals`: the context in which it serves, and where its own signal handlers would be set.
- `servers`: asyncio's servers of the sockets that it listens on; `config.http_protocol_class`, `server_state` and
  `lifespan.state`: what the protocols of their connections are made of.
- `should_exit`, `force_exit`: it stops once the first is set, and waits for nothing once the second is.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypedDict

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from shortlist.errors import ShortlistError
from shortlist.server.messages.headers import Headers

from .head_rules import MalformedRequest, write_head_without_upgrade

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application


ACCEPTED_AT_ONCE = 8  # connections of a socket, in a round of the event loop: uvloop's servers accept one each
HANDSHAKE_SECONDS = 5.0  # of TLS: a connection that says nothing holds a file and memory for as long
CLOSING_SECONDS = 30.0  # of TLS, for a server without settings of its own


class TlsOptions(TypedDict, total=False):
    """Options of the event loop's calls that serve connections; none without TLS."""

    ssl: ssl.SSLContext
    ssl_handshake_timeout: float
    ssl_shutdown_timeout: float


class UvicornServer(uvicorn.Server):
    """uvicorn's server, under names of our own."""

    @property
    def closing_seconds(self) -> float:
        """How long a client may take, with TLS, to read what is left when a connection is closed, and to leave."""
        return CLOSING_SECONDS

    def handle_signals(self) -> None:
        """Set signal handlers, in the running loop; by default none."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        self.handle_signals()
        yield

    @property
    def connections(self) -> set[Any]:
        """The protocols of all connections that are open; of one with TLS, from the end of its handshake on."""
        return self.server_state.connections

    def make_protocol(self) -> asyncio.Protocol:
        """The protocol of one more connection."""
        state = {"config": self.config, "server_state": self.server_state, "app_state": self.lifespan.state}
        return self.config.http_protocol_class(**state)

    async def listen(self, sock: socket.socket) -> None:
        """Listen on one more socket: with TLS where that is wanted, on a Unix socket without."""
        tls, backlog, loop = self.choose_tls(sock), self.config.backlog, asyncio.get_running_loop()
        for copy in (sock, *(sock.dup() for _ in range(1, ACCEPTED_AT_ONCE))):
            self.servers.append(await loop.create_server(self.make_protocol, sock=copy, backlog=backlog, **tls))

    async def serve_connection(self, sock: socket.socket, protocol: asyncio.Protocol) -> None:
        """Serve a connection that was accepted elsewhere, as one of a socket that it listens on, by a new protocol."""
        loop, tls = asyncio.get_running_loop(), self.choose_tls(sock)
        try:
            await loop.connect_accepted_socket(lambda: protocol, sock, **tls)
        except OSError:  # of TLS, too; or the client has left
            sock.close()

    def choose_tls(self, sock: socket.socket) -> TlsOptions:
        """How the event loop is to encrypt the connections of a socket, which are no protocol's before that is done."""
        if sock.family == socket.AF_UNIX or self.config.ssl is None:
            return {}
        return {
            "ssl": self.config.ssl,
            "ssl_handshake_timeout": HANDSHAKE_SECONDS,
            "ssl_shutdown_timeout": self.closing_seconds,
        }

    def close_listeners(self) -> None:
        """Close the listening sockets, so that no new connections come."""
        for server in self.servers:
            server.close()

    def stop(self) -> None:
        """Accept nothing more; finish what was accepted."""
        self.should_exit = True

    def stop_without_delay(self) -> None:
        """As `stop`; at the second call wait for nothing that was accepted."""
        self.force_exit = self.should_exit
        self.should_exit = True


class WholeResponse:
    """What a response is written to: its head waits for what comes next, as two packets cost twice as much as one.

    cycle: of the request until the head has come; not longer, as it refers to this. head: while it waits.
    """

    __slots__ = ("cycle", "head", "transport")

    def __init__(self, cycle: RequestResponseCycle, transport: asyncio.Transport) -> None:
        self.cycle: RequestResponseCycle | None = cycle
        self.transport, self.head = transport, b""

    def write(self, data: bytes) -> None:
        """Write the rest of the response, or what comes before it; keep its head."""
        if self.head:
            self.transport.writelines((self.head, data))
            self.head = b""
        elif self.cycle is not None and self.cycle.response_started:
            self.cycle, self.head = None, data
        else:
            self.transport.write(data)

    def close(self) -> None:
        """Close the connection after what was written."""
        if self.head:
            self.transport.write(self.head)
        self.transport.close()

    def is_closing(self) -> bool:
        """Whether the connection is closed, or soon will be."""
        return self.transport.is_closing()


class UvicornProtocol(HttpToolsProtocol):
    """uvicorn's protocol of one connection, under names of our own."""

    served_cycle: RequestResponseCycle | None = None  # `cycle` is the latest, which may wait in the pipeline
    rest_seconds = 0.0  # before the next request of the pipeline is served
    last_response_time = 0.0  # of a response that uvicorn knows nothing of, by the loop's clock

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=1)  # `pause_writing` says what is not sent yet; at 0 TLS stays paused

    def parse(self, data: bytes) -> None:
        """Let the parser read on; a request that wants another protocol is parsed as if it did not.

        Raises MalformedRequest, or the ShortlistError that a callback raised.
        """
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:  # it has skipped the body, too
            head = write_head_without_upgrade(
                self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers
            )
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            self.parse(head + data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            raise error.__context__ if isinstance(error.__context__, ShortlistError) else MalformedRequest from None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.served_cycle = cycle
        if cycle.scope["method"] != "HEAD":  # whose response is a head and no more
            cycle.transport = WholeResponse(cycle, cycle.transport)  # type: ignore[assignment]  # all that it uses of it
        if self.rest_seconds:
            self.loop.call_later(self.rest_seconds, super()._start_asgi_task, cycle, app)
        else:
            super()._start_asgi_task(cycle, app)

    def drop_requests(self) -> None:
        """Drop the request that is served now, and those that wait behind it."""
        self.pipeline.clear()
        if self.served_cycle is not None:
            self.served_cycle.disconnected = True
            self.served_cycle.message_event.set()

    def hold_reading(self) -> None:
        """Read no more until `go_on_reading`, whatever uvicorn does: it only goes on where it has paused itself."""
        self.flow.read_paused = False
        self.transport.pause_reading()

    def go_on_reading(self) -> None:
        """Read again, unless uvicorn itself has paused and goes on later."""
        if not self.flow.read_paused:
            self.transport.resume_reading()

    def drop_latest(self) -> None:
        """Drop the latest request, where it waits behind others."""
        if self.pipeline:
            self.pipeline.popleft()
            assert self.served_cycle is not None, "it is what they wait for"
            self.cycle = self.pipeline[0][0] if self.pipeline else self.served_cycle

    def close_after_responses(self) -> None:
        """Close the connection after the response to the latest request."""
        self.cycle.keep_alive = False

    @property
    def keeps_open(self) -> bool:
        """Whether the connection stays open after the request that was parsed last."""
        return self.cycle.keep_alive

    @property
    def has_waiting(self) -> bool:
        """Whether requests wait for the one that is served."""
        return bool(self.pipeline)

    @property
    def waiting_requests(self) -> int:
        """How many requests wait for the one that is served."""
        return len(self.pipeline)

    @property
    def is_serving(self) -> bool:
        """Whether a request is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    @property
    def has_started_response(self) -> bool:
        """Whether a part of the response to the request that is served was written."""
        return self.served_cycle is not None and self.served_cycle.response_started

    @property
    def idle(self) -> bool:
        """Whether all responses are sent, or nearly, and the next request may come."""
        return self.timeout_keep_alive_task is not None and not self.flow.write_paused

    @property
    def unsent_bytes(self) -> int:
        """Bytes of responses that the client has not taken."""
        return self.transport.get_write_buffer_size() if self.flow.write_paused else 0

    @property
    def default_headers(self) -> Headers:
        """The headers that every response begins with; a new list whenever they change."""
        return self.server_state.default_headers

    def write_response(self, response: bytes) -> None:
        """Write a response past uvicorn, and count it; the idle connection is kept open from now on."""
        self.transport.write(response)
        self.server_state.total_requests += 1
        self.last_response_time = self.loop.time()

    def start_idle_timer(self) -> None:
        """Close the connection unless the next request begins in time; a timer that runs goes on."""
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def stop_idle_timer(self) -> None:
        self._unset_keepalive_if_required()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection that was idle too long; `write_response` does not restart the timer, which costs more."""
        remaining = self.last_response_time + self.timeout_keep_alive - self.loop.time()
        if remaining > 0:
            self.timeout_keep_alive_task = self.loop.call_later(remaining, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()


def write_head(status: int, headers: Headers) -> bytes:
    """A response's head, as uvicorn writes it."""
    lines = [b"%b: %b\r\n" % header for header in headers]
    return b"".join([STATUS_LINE[status], *lines, b"\r\n"])


def cancel_timer(timer: asyncio.TimerHandle | None) -> None:
    """Cancel a timer, if there is one."""
    if timer is not None:
        timer.cancel()
