"""Requests over plain HTTP and Unix sockets, blocking; threads and forked processes may share a transport."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence

from ..messages import Request, Response
from .address import Address
from .failures import MAX_ATTEMPTS, ConnectionLost, choose_pause, make_connection_error, make_timeout_error
from .pool import Pool
from .request_heads import Headers, make_head_writer
from .response_parser import READ_BYTES, ResponseParser

TOLERANCE_SECONDS = 0.01  # that a wait may take beyond the deadline: setting a socket's timeout is a system call


class Connection:
    """A connection with one request on its way at most. wait_seconds: that the socket waits for one read or write."""

    idle_since = 0.0

    def __init__(self, sock: socket.socket) -> None:
        self.socket, self.parser, self.wait_seconds = sock, ResponseParser(), -1.0
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.events = select.poll()
        self.events.register(sock, select.POLLIN)

    @property
    def is_open(self) -> bool:
        """Whether a request may be sent: the server has neither closed it nor sent what nobody asked for."""
        return not self.events.poll(0)

    def send(self, parts: Sequence[bytes | memoryview], size: int, deadline: float) -> Response:
        """Send the `size` bytes of one request and read its response; raises OSError and ConnectionLost."""
        self.limit_wait(deadline)
        try:
            count = self.socket.sendmsg(parts)
            if count < size:
                self.send_rest(parts, count, deadline)
        except ConnectionError:  # who refuses a request may answer, and close the connection before its end
            response = self.read_response(deadline)
            self.parser.keeps_open = False
            return response
        return self.read_response(deadline)

    def send_rest(self, parts: Sequence[bytes | memoryview], count: int, deadline: float) -> None:
        """Send what follows the first `count` bytes."""
        for part in parts:
            size = memoryview(part).nbytes
            if count < size:
                self.limit_wait(deadline)
                self.socket.sendall(memoryview(part).cast("B")[count:])
            count = max(0, count - size)
        self.limit_wait(deadline)

    def read_response(self, deadline: float) -> Response:
        """Read until the response is whole."""
        self.parser.expect()
        while True:
            count = self.socket.recv_into(self.buffer)
            response = self.parser.parse_piece(bytes(self.buffer[:count])) if count else self.parser.finish()
            if response is not None:
                return response
            self.limit_wait(deadline)

    def limit_wait(self, deadline: float) -> None:
        """Let the socket wait until the deadline, nearly; raises TimeoutError after it."""
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        if abs(seconds - self.wait_seconds) > TOLERANCE_SECONDS:
            self.socket.settimeout(seconds)
            self.wait_seconds = seconds

    def close(self) -> None:
        self.socket.close()


class BlockingTransport:
    """Sends requests to one server over connections that it keeps."""

    def __init__(self, url: str, address: Address, timeout: float, headers: Headers) -> None:
        """url: for the sentences of errors. timeout: seconds until a response must be there. headers: always sent."""
        self.url, self.address, self.timeout = url, address, timeout
        self.write_head = make_head_writer(address, headers)
        self.pool: Pool[Connection] = Pool()

    def send(self, request: Request) -> Response:
        """The response to a request; raises Unreachable."""
        try:
            return self.send_with_repeats(request, time.monotonic() + self.timeout)
        except TimeoutError as error:
            raise make_timeout_error(self.url, self.timeout) from error
        except (OSError, ConnectionLost) as error:
            raise make_connection_error(self.url, error) from error

    def send_with_repeats(self, request: Request, deadline: float) -> Response:
        """Send a request until it is answered, over new connections once one that was kept fails.

        One that must not come twice goes over a new connection at once, which the server does not close meanwhile.
        """
        connection = self.pool.take(is_safe=request.is_safe)
        attempts_left = MAX_ATTEMPTS if request.is_safe else 1
        while True:
            attempts_left -= 1
            is_new = connection is None
            connection = self.connect(deadline) if connection is None else connection
            try:
                return self.send_over(connection, request, deadline)
            except (ConnectionError, ConnectionLost):
                if not attempts_left:
                    raise
            self.pool.clear()  # the server has closed them, too
            connection = None
            if is_new:
                time.sleep(choose_pause())

    def send_over(self, connection: Connection, request: Request, deadline: float) -> Response:
        """Send over a connection, and keep it where another request may follow."""
        size = request.size
        head = self.write_head(request.method, request.path, request.headers, size)
        try:
            response = connection.send((head, *request.parts), len(head) + size, deadline)
        except BaseException:
            connection.close()
            raise
        if connection.parser.keeps_open:
            self.pool.put(connection)
        else:
            connection.close()
        return response

    def connect(self, deadline: float) -> Connection:
        """A new connection; raises OSError."""
        seconds = max(TOLERANCE_SECONDS, deadline - time.monotonic())
        if self.address.is_unix:
            return Connection(connect_unix(self.address.path, seconds))
        host = self.address.host.encode()  # for text, Python imports a codec of names
        sock = socket.create_connection((host, self.address.port), seconds)  # type: ignore[arg-type]
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Connection(sock)

    def close(self) -> None:
        self.pool.close()


def connect_unix(path: str, seconds: float) -> socket.socket:
    """A connection to a Unix socket; raises OSError."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(seconds)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock
