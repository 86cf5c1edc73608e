"""Connections from the sockets that the supervisor listens on to the process that is to serve them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable, Sequence

from shortlist.errors import Unsupported

SIGN = b"c"  # each message is one byte, with a file descriptor on its way to a process and without on its way back
LOSS_SIGN = b"l"  # in place of it on the way back: the process has too many files open to take the connection
TURN_CONNECTIONS = 8  # that a process takes at a time: those too many are closed before the next ones need files
MAX_KEPT = 64  # connections on their way to a process: a socket holds some 270 answers, and the next would be lost
RETRY_SECONDS = 0.02  # until a connection is tried again that no process could take

log = logging.getLogger(__name__)


def make_passage() -> tuple[socket.socket, socket.socket]:
    """The supervisor's end and the process's end, both of which never wait; raises Unsupported on macOS."""
    try:
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        if error.errno != errno.EPROTONOSUPPORT:
            raise
        raise Unsupported("this system has no sockets that share connections: leave out --processes") from error
    for end in ends:
        end.setblocking(False)
    return ends


class Passage:
    """The supervisor's end of the way to one process. passed: connections so far.

    A connection is kept until the process says that it has it, before it reads anything: of one that was killed
    meanwhile another process can still serve it. No answer may be lost: from then on each would let go of an earlier
    connection than its own, which then stays open here after the process has closed it.
    """

    def __init__(self, end: socket.socket) -> None:
        """To be called in the event loop, which notes from now on what the process has taken."""
        self.end = end
        asyncio.get_running_loop().add_reader(end, self.note_taken)
        self.kept: deque[socket.socket] = deque()
        self.passed = 0

    def send(self, connection: socket.socket) -> bool:
        """Pass on a connection, which the caller closes; returns whether there was room, and somebody to take it."""
        if len(self.kept) >= MAX_KEPT:
            self.note_taken()  # as while many connections come the event loop has no turn to
        if len(self.kept) >= MAX_KEPT:
            return False
        with contextlib.ExitStack() as stack:
            try:
                kept = stack.enter_context(connection.dup())
                socket.send_fds(self.end, [SIGN], [connection.fileno()])
            except OSError:  # it has ended, too many wait for it, or too many files are open here
                return False
            stack.pop_all()
        self.kept.append(kept)
        self.passed += 1
        return True

    def note_taken(self) -> None:
        """Let go of the connections that the process has, so that they are closed when it closes them."""
        with contextlib.suppress(BlockingIOError):
            while sign := self.read_sign():
                self.kept.popleft().close()
                self.passed -= sign == LOSS_SIGN
            asyncio.get_running_loop().remove_reader(self.end)  # it has ended

    def read_sign(self) -> bytes:
        """What the process has said of one more connection, nothing where it has ended; raises BlockingIOError."""
        try:
            return self.end.recv(len(SIGN))
        except ConnectionResetError:  # it ended before it took all: said once, and before what it had said itself
            return self.read_sign()

    def close(self) -> list[socket.socket]:
        """The connections that a process never had that has ended."""
        self.note_taken()
        asyncio.get_running_loop().remove_reader(self.end)
        self.end.close()
        return list(self.kept)


def take_connections(end: socket.socket) -> tuple[list[socket.socket], bool]:
    """Some of the connections that wait at a process's end, and whether more may come."""
    connections: list[socket.socket] = []
    for _ in range(TURN_CONNECTIONS):
        try:
            content, descriptors, _, _ = socket.recv_fds(end, len(SIGN), 1)
        except BlockingIOError:
            return connections, True
        except OSError:
            return connections, False
        if not content:  # the supervisor has ended
            return connections, False
        connections += [socket.socket(fileno=descriptor) for descriptor in descriptors]
        with contextlib.suppress(OSError):
            end.send(SIGN if descriptors else LOSS_SIGN)
    return connections, True


class Acceptor:
    """Accepts connections. pass_on: passes one to a process; returns whether there was one that could take it."""

    def __init__(self, pass_on: Callable[[socket.socket], bool]) -> None:
        self.pass_on = pass_on
        self.listeners: Sequence[socket.socket] = ()
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, listeners: Sequence[socket.socket]) -> None:
        """Accept from now on."""
        self.listeners = listeners
        self.tasks = [asyncio.create_task(self.accept_all(listener)) for listener in listeners]

    async def accept_all(self, listener: socket.socket) -> None:
        """Accept connections and pass them on, in an endless loop."""
        listener.setblocking(False)
        while True:
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(listener)
            except OSError as error:  # too many files are open, or the client has left
                log.warning("a connection could not be accepted: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await self.pass_on_soon(connection)

    async def pass_on_soon(self, connection: socket.socket) -> None:
        """Pass a connection on as soon as a process can take it."""
        with connection:
            while not self.pass_on(connection):
                await asyncio.sleep(RETRY_SECONDS)

    def stop(self) -> None:
        """Pass on what waits to be accepted, and accept nothing more."""
        for task in self.tasks:
            task.cancel()
        for listener in self.listeners:
            with contextlib.suppress(BlockingIOError), listener:
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        self.pass_on(connection)
        self.listeners, self.tasks = (), []
