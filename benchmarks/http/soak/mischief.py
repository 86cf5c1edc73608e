"""Clients that misbehave while others are served, each followed by a well-behaved one that must not notice."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

from shortlist.head import Head

from benchmarks.http.client.wire import HEAD_END, Address, Lost, connected, parsed

from .expected import Expected
from .judgement import ALLOWED, OK, Mischief

READ = 65_536
PAUSE = 0.5  # seconds between two of a kind
LIE = 200  # bytes by which Content-Length is wrong
DRIPS = 60  # most seconds of one byte a second
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Act = Callable[[Stream, bytes, float], Awaitable[str]]


async def vanish(stream: Stream, request: bytes, seconds: float) -> str:
    """Half a body, then a reset."""
    del seconds
    _, writer = stream
    head, _, body = request.partition(HEAD_END)
    writer.write(head + HEAD_END + body[: len(body) // 2])
    await writer.drain()
    await asyncio.sleep(PAUSE)
    # no time to linger: the kernel sends a reset instead of an orderly end
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return "went"


async def drip(stream: Stream, request: bytes, seconds: float) -> str:
    """One byte a second, for `seconds` or until the server has enough of it."""
    reader, writer = stream
    for byte in request[: max(1, min(DRIPS, int(seconds)))]:
        writer.write(bytes([byte]))
        heard = await until_end(reader, 1.0)
        if heard != "nothing":
            return heard
    return "still listened to"


async def half_close(stream: Stream, request: bytes, seconds: float) -> str:
    """The whole request, then no more to say, but still listening."""
    reader, writer = stream
    writer.write(request)
    writer.write_eof()
    return await until_end(reader, seconds)


async def announce_more(stream: Stream, request: bytes, seconds: float) -> str:
    """A Content-Length over the body's; the rest never comes."""
    reader, writer = stream
    writer.write(with_length(request, LIE))
    return await until_end(reader, min(seconds, 5.0))


async def announce_less(stream: Stream, request: bytes, seconds: float) -> str:
    """A Content-Length under the body's: what follows the request is garbage."""
    reader, writer = stream
    writer.write(with_length(request, -LIE))
    return await until_end(reader, min(seconds, 5.0))


ACTS: dict[str, Act] = {
    "vanishes mid-body": vanish,
    "sends one byte a second": drip,
    "half-closes after the request": half_close,
    "announces more bytes than it sends": announce_more,
    "announces fewer bytes than it sends": announce_less,
}


def with_length(request: bytes, more: int) -> bytes:
    """The same request with another Content-Length."""
    head, _, body = request.partition(HEAD_END)
    true, false = (f"Content-Length: {length}".encode() for length in (len(body), len(body) + more))
    return head.replace(true, false) + HEAD_END + body


async def until_end(reader: asyncio.StreamReader, seconds: float) -> str:
    """What comes within `seconds`: `nothing`, `hung up`, or a status."""
    received = b""
    try:
        async with asyncio.timeout(seconds):
            while True:
                data = await reader.read(READ)
                received += data
                reply = parsed(received)
                if reply is not None:
                    return f"answered {reply.status}"
                if not data:
                    return "hung up"
    except TimeoutError:
        return "nothing"
    except OSError:
        return "reset"


async def misbehave(
    name: str, address: Address, questions: list[Expected], head: Head, seconds: float, patience: float
) -> Mischief:
    """One kind of client, again and again for `seconds`, each time followed by a look at a neighbour."""
    done = Mischief(name)
    loop = asyncio.get_running_loop()
    until, turn = loop.time() + seconds, 0
    while (left := until - loop.time() - PAUSE) > 0:
        question = max(questions[turn % len(questions) :][:5], key=lambda each: len(each.untimed))
        done.outcomes[await acted(ACTS[name], address, question.timed, left)] += 1
        harm = await neighbour(address, question, head, patience)
        if harm is not None:
            done.harmed.append(harm)
        turn += 1
        await asyncio.sleep(PAUSE)
    return done


async def acted(act: Act, address: Address, request: bytes, seconds: float) -> str:
    """One misbehaving client from connecting to closing; what it got."""
    try:
        stream = await asyncio.open_connection(address.host, address.port)
        try:
            return await act(stream, request, seconds)
        finally:
            stream[1].close()
    except Lost as error:
        return str(error)
    except OSError as error:
        return f"no connection ({error.strerror})"


async def neighbour(address: Address, question: Expected, head: Head, patience: float) -> str | None:
    """What is wrong with the service of a well-behaved client on a connection of its own, or None."""
    try:
        wire = await connected(address)
        reply = await wire.ask(question.timed, patience)
        wire.close()
    except Lost as error:
        return str(error)
    if reply.status not in ALLOWED:
        return f"answered {reply.status}"
    return question.difference(reply, head) if reply.status == OK else None
