"""A client on raw sockets: many keep-alive connections, one request at a time on each, little work for Python."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

STALE = 30.0  # seconds; a connection idle for longer is not used again: the server may be about to close it
HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Reply:
    """One response; names of headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Lost(Exception):
    """The connection ended before the answer did; says how."""


def parsed(received: bytes | bytearray) -> Reply | None:
    """The response at the start of `received`, None while it is not whole. Raises Lost where it is no HTTP."""
    head, end, rest = bytes(received).partition(HEAD_END)
    if not end:
        return None
    try:
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", 0))
        status = int(first.split(" ")[1])
    except (ValueError, IndexError):
        raise Lost("something that is no HTTP response") from None
    return Reply(status, headers, rest[:length]) if len(rest) >= length else None


class Wire(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        """Not connected yet."""
        self.received = bytearray()
        self.waiting: asyncio.Future[Reply] | None = None
        self.open = True
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready for requests."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass, but the same

    def data_received(self, data: bytes) -> None:
        """Part of an answer."""
        self.received += data
        try:
            reply = parsed(self.received)
        except Lost as error:
            self.fail(error)
            return
        if reply is not None:
            self.received.clear()
            if reply.headers.get("connection") == "close":
                self.close()
            if self.waiting is not None and not self.waiting.done():
                self.waiting.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        """The server or we closed it."""
        self.open = False
        self.fail(Lost("connection closed without an answer" if error is None else "connection reset"))

    def fail(self, error: Lost) -> None:
        """Tell whoever waits."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(error)

    def close(self) -> None:
        """No more requests on this one."""
        self.open = False
        self.transport.close()

    async def ask(self, request: bytes, patience: float) -> Reply:
        """Send, and wait `patience` seconds for the answer; raises Lost."""
        self.waiting = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            return await asyncio.wait_for(self.waiting, patience)
        except TimeoutError:
            self.close()
            raise Lost(f"no answer within {patience:g} s") from None


@dataclass
class Pool:
    """Up to `most` connections to one server; a request that finds none free waits for one."""

    address: Address
    most: int
    idle: list[Wire] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.places = asyncio.Semaphore(self.most)

    async def ask(self, request: bytes, patience: float) -> Reply:
        """One request on a free connection, or on a new one; raises Lost."""
        async with self.places:
            wire = self.free() or await connected(self.address)
            reply = await wire.ask(request, patience)
            if wire.open:
                wire.idle_since = asyncio.get_running_loop().time()
                self.idle.append(wire)
            return reply

    def free(self) -> Wire | None:
        """The connection used last, so that those not needed grow old; they are closed."""
        now = asyncio.get_running_loop().time()
        while self.idle:
            wire = self.idle.pop()
            if wire.open and now - wire.idle_since < STALE:
                return wire
            wire.close()
        return None

    def close(self) -> None:
        """Close what is idle."""
        while self.idle:
            self.idle.pop().close()


async def connected(address: Address) -> Wire:
    """A new connection; raises Lost."""
    try:
        _, wire = await asyncio.get_running_loop().create_connection(Wire, address.host, address.port)
    except OSError as error:
        raise Lost(f"no connection ({error.strerror or error})") from None
    return wire
