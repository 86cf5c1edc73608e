"""Requests over plain HTTP and Unix sockets, for asyncio."""

from __future__ import annotations

import asyncio
import select
from typing import cast

from ..messages import Request, Response
from .address import Address
from .failures import (
    MAX_ATTEMPTS,
    ConnectionLost,
    choose_pause,
    make_connection_error,
    make_place_error,
    make_timeout_error,
)
from .places import Places
from .pool import Pool
from .request_heads import Headers, make_head_writer
from .response_parser import READ_BYTES, ResponseParser

MAX_CONNECTIONS = 100  # of one client at a time; more requests wait for one


class Connection(asyncio.BufferedProtocol):
    """A connection with one request on its way at most. deadline: of that, by the loop's clock."""

    is_lost, idle_since, deadline = False, 0.0, 0.0
    waiter: asyncio.Future[Response] | None = None
    timer: asyncio.TimerHandle | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop, self.parser = loop, ResponseParser()
        self.buffer = memoryview(bytearray(READ_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass, but the same
        self.events = select.poll()
        self.events.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent: the server has neither closed it nor sent what nobody asked for.

        The loop may not have come to see that.
        """
        return not self.is_lost and not self.events.poll(0)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts what it reads."""
        del sizehint
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Parse more of a response; what comes while none is waited for ends the connection."""
        if self.waiter is None:
            self.close()
            return
        try:
            response = self.parser.parse_piece(bytes(self.buffer[:nbytes]))
        except ConnectionLost as error:
            self.fail(error)
            return
        if response is not None and not self.waiter.done():
            self.waiter.set_result(response)

    def connection_lost(self, error: Exception | None) -> None:
        """The server closed it, or this side."""
        self.is_lost = True
        if self.waiter is None or self.waiter.done():
            return
        try:
            if error is not None:
                raise ConnectionLost(str(error))
            self.waiter.set_result(self.parser.finish())
        except ConnectionLost as lost:
            self.fail(lost)

    async def send(self, data: bytes, deadline: float) -> Response:
        """Send one request and wait for its response; raises ConnectionLost, and TimeoutError after the deadline."""
        self.waiter = self.loop.create_future()
        self.transport.write(data)
        self.parser.expect()  # the rest while the server works
        self.watch(deadline)
        try:
            return await self.waiter
        except BaseException:
            self.close()  # where the task is cancelled, too
            raise
        finally:
            self.waiter = None

    def watch(self, deadline: float) -> None:
        """Fail at the deadline. A timer for an earlier one goes on: it costs less than a new one for each request."""
        self.deadline = deadline
        if self.timer is None:
            self.timer = self.loop.call_at(deadline, self.check_deadline)

    def check_deadline(self) -> None:
        """Fail where the deadline has passed, else look again when it does."""
        self.timer = None
        if self.waiter is None:
            return
        if self.loop.time() < self.deadline:
            self.watch(self.deadline)
        else:
            self.fail(TimeoutError())

    def fail(self, error: Exception) -> None:
        """Raise `error` in the request that waits, and close the connection."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_exception(error)
        self.close()

    def close(self) -> None:
        """Close the connection at once; nothing that was to be sent is waited for."""
        self.is_lost = True
        if self.timer is not None:
            self.timer.cancel()
        if not self.loop.is_closed():
            self.transport.abort()


class LoopConnections:
    """What a transport has open in one event loop. places: for connections."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop, self.places = loop, Places(MAX_CONNECTIONS)
        self.pool: Pool[Connection] = Pool()


class AsyncTransport:
    """Sends requests to one server over connections that it keeps, in one event loop at a time."""

    def __init__(self, url: str, address: Address, timeout: float, headers: Headers) -> None:
        """url: for the sentences of errors. timeout: seconds until a response must be there. headers: always sent."""
        self.url, self.address, self.timeout = url, address, timeout
        self.write_head = make_head_writer(address, headers)
        self.open = LoopConnections(None)

    async def send(self, request: Request) -> Response:
        """The response to a request; raises Unreachable."""
        loop = asyncio.get_running_loop()
        if self.open.loop is not loop and not self.open.pool.is_closed:
            self.open = LoopConnections(loop)  # those of another loop cannot be used, nor closed, here
        places, deadline = self.open.places, loop.time() + self.timeout
        if places.free:
            places.free -= 1
        else:
            await self.wait_for_place(places, deadline)
        try:
            return await self.send_with_repeats(request, deadline)
        except TimeoutError as error:
            raise make_timeout_error(self.url, self.timeout) from error
        except (OSError, ConnectionLost) as error:
            raise make_connection_error(self.url, error) from error
        finally:
            places.give_back()

    async def wait_for_place(self, places: Places, deadline: float) -> None:
        """Take the place of a request that is answered; raises Unreachable after the deadline."""
        try:
            async with asyncio.timeout_at(deadline):
                await places.wait()
        except TimeoutError as error:
            raise make_place_error(self.url, MAX_CONNECTIONS, self.timeout) from error

    async def send_with_repeats(self, request: Request, deadline: float) -> Response:
        """Send a request until it is answered, as the blocking transport does."""
        head, pool = self.write_head(request.method, request.path, request.headers, request.size), self.open.pool
        data = b"".join((head, *request.parts))
        connection = pool.take(is_safe=request.is_safe)
        attempts_left = MAX_ATTEMPTS if request.is_safe else 1
        while True:
            attempts_left -= 1
            is_new = connection is None
            connection = await self.connect(deadline) if connection is None else connection
            try:
                response = await connection.send(data, deadline)
            except ConnectionLost:
                if not attempts_left:
                    raise
            else:
                keep_open(connection, pool)
                return response
            pool.clear()  # the server has closed them, too
            connection = None
            if is_new:
                await asyncio.sleep(choose_pause())

    async def connect(self, deadline: float) -> Connection:
        """A new connection; raises OSError."""
        loop, address = asyncio.get_running_loop(), self.address
        async with asyncio.timeout_at(deadline):
            if address.is_unix:
                return (await loop.create_unix_connection(lambda: Connection(loop), address.path))[1]
            return (await loop.create_connection(lambda: Connection(loop), address.host, address.port))[1]

    async def close(self) -> None:
        self.open.pool.close()
        await asyncio.sleep(0)  # until the transports have closed their sockets


def keep_open(connection: Connection, pool: Pool[Connection]) -> None:
    """Keep a connection where another request may follow."""
    if connection.parser.keeps_open and not connection.is_lost:
        pool.put(connection)
    else:
        connection.close()
