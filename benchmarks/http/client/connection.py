"""A client on raw sockets: many keep-alive connections, one request at a time on each, little work for Python."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

MAX_IDLE_SECONDS = 30.0  # a connection idle for longer is not used again: the server may be about to close it
HEAD_END = b"\r\n\r\n"
INTERIM_START = b"HTTP/1.1 1"  # of responses before the one that counts


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RawResponse:
    """Status, headers (names in lower case) and body of a response."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class ConnectionLost(Exception):
    """The connection ended before the response did; the message says how."""


def parse_response(buffer: bytes | bytearray) -> RawResponse | None:
    """The response at the start of `buffer`, behind interim ones; None while it is not whole.

    Raises ConnectionLost for what is no HTTP.
    """
    head, end, rest = bytes(buffer).partition(HEAD_END)
    if not end:
        return None
    if head.startswith(INTERIM_START):
        return parse_response(rest)
    try:
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", 0))
        status = int(first.split(" ")[1])
    except (ValueError, IndexError):
        raise ConnectionLost("something that is no HTTP response") from None
    return RawResponse(status, headers, rest[:length]) if len(rest) >= length else None


class Connection(asyncio.Protocol):
    """One keep-alive connection, with at most one request on its way."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.pending_response: asyncio.Future[RawResponse] | None = None
        self.open = True
        self.idle_since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass, but the same

    def data_received(self, data: bytes) -> None:
        """Append to the response that is received; when it is whole, hand it to the waiting request."""
        self.buffer += data
        try:
            response = parse_response(self.buffer)
        except ConnectionLost as error:
            self.fail(error)
            return
        if response is not None:
            self.buffer.clear()
            if response.headers.get("connection") == "close":
                self.close()
            if self.pending_response is not None and not self.pending_response.done():
                self.pending_response.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        """The server or this side closed it."""
        self.open = False
        self.fail(ConnectionLost("connection closed without an answer" if error is None else "connection reset"))

    def fail(self, error: ConnectionLost) -> None:
        """Raise `error` in the waiting request."""
        if self.pending_response is not None and not self.pending_response.done():
            self.pending_response.set_exception(error)

    def close(self) -> None:
        """Close the connection; no request may follow."""
        self.open = False
        self.transport.close()

    async def send(self, request: bytes, timeout: float) -> RawResponse:
        """Send, and wait `timeout` seconds for the response; raises ConnectionLost."""
        self.pending_response = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        try:
            return await asyncio.wait_for(self.pending_response, timeout)
        except TimeoutError:
            self.close()
            raise ConnectionLost(f"no answer within {timeout:g} s") from None


@dataclass
class ConnectionPool:
    """Up to `most` connections to one server; a request that finds none free waits for one."""

    address: Address
    most: int
    idle: list[Connection] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.places = asyncio.Semaphore(self.most)

    async def send(self, request: bytes, timeout: float) -> RawResponse:
        """One request on a free connection, or on a new one; raises ConnectionLost."""
        async with self.places:
            connection = self.take_idle() or await open_connection(self.address)
            response = await connection.send(request, timeout)
            if connection.open:
                connection.idle_since = asyncio.get_running_loop().time()
                self.idle.append(connection)
            return response

    def take_idle(self) -> Connection | None:
        """The connection used last, so that those not needed grow old; they are closed."""
        now = asyncio.get_running_loop().time()
        while self.idle:
            connection = self.idle.pop()
            if connection.open and now - connection.idle_since < MAX_IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def close(self) -> None:
        while self.idle:
            self.idle.pop().close()


async def open_connection(address: Address) -> Connection:
    """Open a connection to the server; raises ConnectionLost."""
    try:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, address.host, address.port)
    except OSError as error:
        raise ConnectionLost(f"no connection ({error.strerror or error})") from None
    return connection
