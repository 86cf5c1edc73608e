"""Clients that mean harm: each does what once took memory or time from everybody else."""

from __future__ import annotations

import asyncio
import gzip
import json

from benchmarks.http.client.connection import HEAD_END

from .faulty_clients import READ_BYTES, Fault, Stream, read_outcome

FLOOD_REQUESTS = 2_000
FLOOD_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
FLOOD_MARK = b"200 OK"  # of a response
FLOOD_LEEWAY = 100  # marks that may be cut in two between reads
ATTACK_SECONDS = 40.0  # of one attack, unless it ends before
BOMB_BYTES = (16_000_000, 2_000_000)  # as much as a body may have, and as much JSON as is still parsed
BOMB_TEXT = b'"ab"'
BOMB_LEVEL = 6  # of gzip, as clients have it
UNREAD_ROWS, UNREAD_K = 64, 1_000  # of a large response
UNREAD_PAUSE_SECONDS = 0.2  # between two requests whose responses nobody reads
UPGRADE = b"\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAA"
UPGRADE_PAUSE_SECONDS = 0.02  # between the head and the body, so that they are read one after the other


async def abandon_response(stream: Stream, request: bytes, seconds: float) -> str:
    """Ask for much, in JSON, again and again, and read nothing."""
    _, writer = stream
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # a stream's transport reads, too
    large = make_large_request(request)
    try:
        async with asyncio.timeout(min(seconds, ATTACK_SECONDS)):
            while not writer.transport.is_closing():
                writer.write(large)
                await writer.drain()
                await asyncio.sleep(UNREAD_PAUSE_SECONDS)
    except TimeoutError:
        return "not cut off yet"
    except OSError:
        pass
    return "cut off"


def make_large_request(request: bytes) -> bytes:
    """A request to the model of `request` whose answer in JSON is large."""
    path = request.split(b" ", 2)[1].decode()
    head, _, body = request.partition(HEAD_END)
    length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"inference-header")).split()[1])
    dim = json.loads(body[:length])["inputs"][0]["shape"][1]
    entry = {"name": "context", "shape": [UNREAD_ROWS, dim], "datatype": "FP32", "data": [0.5] * UNREAD_ROWS * dim}
    return make_post(path, json.dumps({"inputs": [entry], "parameters": {"k": UNREAD_K}}).encode())


def make_post(path: str, body: bytes, *headers: str) -> bytes:
    """A POST with a body."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def ask_for_upgrade(stream: Stream, request: bytes, seconds: float) -> str:
    """The whole request, which asks for another protocol; its body, later than the head, was once the next request."""
    reader, writer = stream
    head, _, body = request.partition(HEAD_END)
    writer.write(head + UPGRADE + HEAD_END)
    await asyncio.sleep(UPGRADE_PAUSE_SECONDS)
    writer.write(body)
    return await read_outcome(reader, min(seconds, ATTACK_SECONDS))


async def flood(stream: Stream, request: bytes, seconds: float) -> str:
    """Thousands of requests at once, whose answers are read."""
    del request
    reader, writer = stream
    writer.write(FLOOD_REQUEST * FLOOD_REQUESTS)
    writer.write(FLOOD_REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    count = 0
    try:
        async with asyncio.timeout(min(seconds, ATTACK_SECONDS)):
            while data := await reader.read(READ_BYTES):
                count += data.count(FLOOD_MARK)
    except TimeoutError:
        return "not all answered yet"
    except OSError:
        return "reset"
    return "all answered" if count > FLOOD_REQUESTS - FLOOD_LEEWAY else "hung up"


async def send_bombs(stream: Stream, request: bytes, seconds: float) -> str:
    """Some kilobytes of gzip that become 16 MiB of JSON, and such that are just small enough to be parsed."""
    reader, writer = stream
    path = request.split(b" ", 2)[1].decode()
    outcomes = []
    for bomb in BOMBS:
        writer.write(make_post(path, bomb, "Content-Encoding: gzip"))
        outcomes.append(await read_outcome(reader, min(seconds, ATTACK_SECONDS)))
    return ", ".join(outcomes)


def make_bomb(size: int) -> bytes:
    """JSON of about `size` bytes of short texts, compressed."""
    texts = b",".join([BOMB_TEXT] * (size // len(BOMB_TEXT + b",")))
    return gzip.compress(b'{"inputs": [' + texts + b"]}", BOMB_LEVEL)


BOMBS = tuple(make_bomb(size) for size in BOMB_BYTES)  # beforehand: it takes time that the load has not


ATTACKS: dict[str, Fault] = {
    "reads none of its large answers": abandon_response,
    "asks for another protocol": ask_for_upgrade,
    "sends thousands of requests at once": flood,
    "sends kilobytes of gzip that become megabytes": send_bombs,
}
