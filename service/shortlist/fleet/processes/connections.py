"""Connections from the sockets that the supervisor listens on to the process that is to serve them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence

TAKE = b"c"  # each message is one byte and one file descriptor
MAX_BYTES = 1
RETRY_SECONDS = 0.02  # until a connection is tried again that no process could take

log = logging.getLogger(__name__)


def make_passage() -> tuple[socket.socket, socket.socket]:
    """The supervisor's end and the process's end, both of which never wait."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        end.setblocking(False)
    return ends


def pass_connection(passage: socket.socket, connection: socket.socket) -> bool:
    """Pass a connection on, which the caller closes then; returns whether there was room, and somebody to take it."""
    try:
        socket.send_fds(passage, [TAKE], [connection.fileno()])
    except OSError:  # it has ended, or too many wait for it
        return False
    return True


def take_connections(passage: socket.socket) -> tuple[list[socket.socket], bool]:
    """All connections that wait, and whether more may come."""
    connections: list[socket.socket] = []
    while True:
        try:
            content, descriptors, _, _ = socket.recv_fds(passage, MAX_BYTES, 1)
        except BlockingIOError:
            return connections, True
        except OSError:
            return connections, False
        connections += [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if not content:  # the supervisor has ended
            return connections, False


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
