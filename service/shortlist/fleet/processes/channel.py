"""Messages between the supervisor and one of its processes, over a pair of Unix sockets: each side asks and answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import orjson

from .tasks import Tasks

LENGTH_BYTES = 8  # before each message
Handle = Callable[[str, Any], Awaitable[Any]]

log = logging.getLogger(__name__)


class ChannelClosed(Exception):
    """The other side has ended, or ended before it answered."""


class Channel:
    """One side. A message is JSON after its length: a question with its number, name and value, or an answer to one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handle) -> None:
        """handle: answers the other side's questions, each in a task of its own, given their name and value."""
        self.reader, self.writer, self.handle = reader, writer, handle
        self.numbers = itertools.count()
        self.waiting: dict[int, asyncio.Future[Any]] = {}
        self.tasks = Tasks()
        self.closed = False

    @classmethod
    async def open(cls, sock: socket.socket, handle: Handle) -> Channel:
        """Talk over a connected socket."""
        return cls(*await asyncio.open_unix_connection(sock=sock), handle)

    async def ask(self, name: str, value: Any = None) -> Any:
        """What the other side answers; raises ChannelClosed."""
        if self.closed:
            raise ChannelClosed
        number = next(self.numbers)
        self.waiting[number] = asyncio.get_running_loop().create_future()
        self.send({"number": number, "ask": name, "value": value})
        try:
            return await self.waiting[number]
        finally:
            del self.waiting[number]

    def tell(self, name: str, value: Any = None) -> None:
        """Ask for nothing; one who has ended need not know."""
        if not self.closed:
            self.send({"ask": name, "value": value})

    def send(self, message: dict[str, Any]) -> None:
        """Write a message; the system or this process holds it until it is read."""
        content = orjson.dumps(message, option=orjson.OPT_SERIALIZE_NUMPY)
        with contextlib.suppress(RuntimeError):  # of uvloop, where the socket is closed, as `run` hears in a moment
            self.writer.write(len(content).to_bytes(LENGTH_BYTES, "big") + content)

    async def run(self) -> None:
        """Read until the other side has ended; then nobody waits for its answers any longer."""
        try:
            while True:
                length = int.from_bytes(await self.reader.readexactly(LENGTH_BYTES), "big")
                self.receive(orjson.loads(await self.reader.readexactly(length)))
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.close()

    def receive(self, message: dict[str, Any]) -> None:
        """Take an answer, or begin to answer a question."""
        if "ask" in message:
            self.tasks.start(self.answer(message))
        else:
            future = self.waiting.get(message["number"])
            if future is not None and not future.done():
                future.set_result(message["answer"])

    async def answer(self, message: dict[str, Any]) -> None:
        """Answer a question, with nothing where that fails by an error that nobody foresaw."""
        try:
            value = await self.handle(message["ask"], message["value"])
        except ChannelClosed:  # a process has ended that was to do it, of which the log has a line
            value = None
        except Exception:
            log.exception("'%s' of another process failed", message["ask"])
            value = None
        if "number" in message and not self.closed:
            self.send({"number": message["number"], "answer": value})

    def close(self) -> None:
        """Talk no more."""
        self.closed = True
        self.writer.close()
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(ChannelClosed())
