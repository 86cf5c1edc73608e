"""The one module that uses what uvicorn does not document: read it when uvicorn is upgraded.

Of `uvicorn.protocols.http.httptools_impl`, as of uvicorn 0.54:

- `HttpToolsProtocol`, its parser's callbacks and `send_400_response`, which `connection` overrides, its `scope`,
  `headers`, `loop` and `timeout_keep_alive`: they show heads and bodies as they arrive, which bounds how long and how
  large a head may be, and they are where a refusal can be a sentence in JSON.
- `cycle`, `pipeline`, `_start_asgi_task`: the request that is served and those that wait behind it, to drop them all
  when nobody will read their responses.
- `timeout_keep_alive_task`, `timeout_keep_alive_handler`, `flow.write_paused`: whether a connection is idle, and for
  how long, for the fast path.
- `server_state`: the headers that every response begins with, and the count of requests.
- `STATUS_LINE`: the first line of a response for each status.

Of `uvicorn.Server`:

- `capture_signals`: the context in which it serves, and where its own signal handlers would be set.
- `servers`: asyncio's servers of the sockets that it listens on.
- `should_exit`, `force_exit`: it stops once the first is set, and waits for nothing once the second is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from shortlist.server.messages.headers import Headers

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application


class UvicornServer(uvicorn.Server):
    """uvicorn's server, under names of our own."""

    def handle_signals(self) -> None:
        """Set signal handlers, in the running loop; by default none."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        self.handle_signals()
        yield

    def close_listeners(self) -> None:
        """Close the listening sockets, so that no new connections come."""
        for server in self.servers:
            server.close()

    def stop(self) -> None:
        """Accept nothing more; finish what was accepted."""
        self.should_exit = True

    def stop_without_delay(self) -> None:
        """The same; at the second call wait for nothing that was accepted."""
        self.force_exit = self.should_exit
        self.should_exit = True


class UvicornProtocol(HttpToolsProtocol):
    """uvicorn's protocol of one connection, under names of our own."""

    served_cycle: RequestResponseCycle | None = None  # `cycle` is the latest, which may wait in the pipeline
    last_response_time = 0.0  # of a response that uvicorn knows nothing of, by the loop's clock

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.served_cycle = cycle
        super()._start_asgi_task(cycle, app)

    def drop_requests(self) -> None:
        """Drop the request that is served now, and those that wait behind it."""
        self.pipeline.clear()
        if self.served_cycle is not None:
            self.served_cycle.disconnected = True
            self.served_cycle.message_event.set()

    @property
    def keeps_open(self) -> bool:
        """Whether the connection stays open after the request that was parsed last."""
        return self.cycle.keep_alive

    @property
    def idle(self) -> bool:
        """Whether all responses are sent, or nearly, and the next request may come."""
        return self.timeout_keep_alive_task is not None and not self.flow.write_paused

    @property
    def default_headers(self) -> Headers:
        """The headers that every response begins with; a new list whenever they change."""
        return self.server_state.default_headers

    def write_response(self, response: bytes) -> None:
        """Write a response past uvicorn, and count it; the idle connection is kept open from now on."""
        self.transport.write(response)
        self.server_state.total_requests += 1
        self.last_response_time = self.loop.time()

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
