"""Clients that misbehave while others are served, each followed by a well-behaved one that must not notice."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable

from shortlist.head import Head

from benchmarks.http.client.connection import HEAD_END, Address, ConnectionLost, open_connection, parse_response

from .checks import ALLOWED_STATUSES, OK, FaultyClient
from .expected_responses import ExpectedResponse

READ_BYTES = 65_536
PAUSE_SECONDS = 0.5  # between two of a kind
LENGTH_ERROR_BYTES = 200  # by so much is Content-Length wrong
MAX_SLOW_BYTES = 60  # of a client that sends one a second
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Fault = Callable[[Stream, bytes, float], Awaitable[str]]


async def reset_mid_body(stream: Stream, request: bytes, seconds: float) -> str:
    """Send half of a body, then reset the connection."""
    del seconds
    _, writer = stream
    head, _, body = request.partition(HEAD_END)
    writer.write(head + HEAD_END + body[: len(body) // 2])
    await writer.drain()
    await asyncio.sleep(PAUSE_SECONDS)
    # no time to linger: the kernel sends a reset instead of an orderly end
    raw: socket.socket = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return "reset by the client"


async def send_slowly(stream: Stream, request: bytes, seconds: float) -> str:
    """One byte a second, for `seconds` or until the server answers or closes."""
    reader, writer = stream
    for byte in request[: max(1, min(MAX_SLOW_BYTES, int(seconds)))]:
        writer.write(bytes([byte]))
        outcome = await read_outcome(reader, 1.0)
        if outcome != "nothing":
            return outcome
    return "still listened to"


async def half_close(stream: Stream, request: bytes, seconds: float) -> str:
    """The whole request, then the end of the sending side; the response is still awaited."""
    reader, writer = stream
    writer.write(request)
    writer.write_eof()
    return await read_outcome(reader, seconds)


async def announce_more(stream: Stream, request: bytes, seconds: float) -> str:
    """A Content-Length over the body's; the rest never comes."""
    reader, writer = stream
    writer.write(change_length(request, LENGTH_ERROR_BYTES))
    return await read_outcome(reader, min(seconds, 5.0))


async def announce_less(stream: Stream, request: bytes, seconds: float) -> str:
    """A Content-Length under the body's: what follows the request is garbage."""
    reader, writer = stream
    writer.write(change_length(request, -LENGTH_ERROR_BYTES))
    return await read_outcome(reader, min(seconds, 5.0))


FAULTS: dict[str, Fault] = {
    "vanishes mid-body": reset_mid_body,
    "sends one byte a second": send_slowly,
    "half-closes after the request": half_close,
    "announces more bytes than it sends": announce_more,
    "announces fewer bytes than it sends": announce_less,
}


def change_length(request: bytes, more: int) -> bytes:
    """The same request with another Content-Length."""
    head, _, body = request.partition(HEAD_END)
    right, wrong = (f"Content-Length: {length}".encode() for length in (len(body), len(body) + more))
    return head.replace(right, wrong) + HEAD_END + body


async def read_outcome(reader: asyncio.StreamReader, seconds: float) -> str:
    """What comes within `seconds`: `nothing`, `hung up`, `reset`, or a status."""
    content = b""
    try:
        async with asyncio.timeout(seconds):
            while True:
                data = await reader.read(READ_BYTES)
                content += data
                response = parse_response(content)
                if response is not None:
                    return f"answered {response.status}"
                if not data:
                    return "hung up"
    except TimeoutError:
        return "nothing"
    except OSError:
        return "reset"


async def run_faulty_client(
    client: FaultyClient,
    fault: Fault,
    address: Address,
    requests: list[ExpectedResponse],
    head: Head,
    seconds: float,
    timeout: float,
) -> None:
    """One kind of faulty client, again and again for `seconds`, each followed by a well-behaved neighbour."""
    loop = asyncio.get_running_loop()
    until, number = loop.time() + seconds, 0
    while (seconds_left := until - loop.time() - PAUSE_SECONDS) > 0:
        expected = max(requests[number % len(requests) :][:5], key=lambda each: len(each.without_timeout))
        client.outcomes[await commit_fault(fault, client.source, address, expected.with_timeout, seconds_left)] += 1
        harm = await check_neighbour(address, expected, head, timeout)
        if harm is not None:
            client.harms.append(harm)
        number += 1
        await asyncio.sleep(PAUSE_SECONDS)


async def commit_fault(fault: Fault, source: str, address: Address, request: bytes, seconds: float) -> str:
    """One faulty client, whose address is `source`, from connecting to closing; returns what it got."""
    try:
        stream = await asyncio.open_connection(address.host, address.port, local_addr=(source, 0))
        try:
            return await fault(stream, request, seconds)
        finally:
            stream[1].close()
    except ConnectionLost as error:
        return str(error)
    except OSError as error:
        return f"no connection ({error.strerror})"


async def check_neighbour(address: Address, expected: ExpectedResponse, head: Head, timeout: float) -> str | None:
    """What is wrong with the service of a well-behaved client on a connection of its own, or None."""
    try:
        connection = await open_connection(address)
        response = await connection.send(expected.with_timeout, timeout)
        connection.close()
    except ConnectionLost as error:
        return str(error)
    if response.status not in ALLOWED_STATUSES:
        return f"answered {response.status}"
    return expected.describe_difference(response, head) if response.status == OK else None
