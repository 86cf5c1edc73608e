"""What hostile clients send: each act yields the parts that it writes to one connection."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from random import Random

import orjson

from tests.support.layers import DIM

PATH = b"/v2/models/lm/infer"
BODY = orjson.dumps({"inputs": [{"name": "context", "datatype": "FP32", "shape": [1, DIM], "data": [0.5] * DIM}]})
PIPELINED_REQUESTS = 40

Parts = Iterator[bytes]


def head(*headers: bytes, method: bytes = b"POST", path: bytes = PATH, version: bytes = b"HTTP/1.1") -> bytes:
    """A request's head, with whatever headers."""
    return b"\r\n".join([b" ".join((method, path, version)), b"Host: localhost", *headers, b"", b""])


VALID_REQUEST = head(b"Content-Length: %d" % len(BODY)) + BODY
CLOSING_REQUEST = head(b"Content-Length: %d" % len(BODY), b"Connection: close") + BODY
ENDLESS_HEADS = (
    (b"GET /healthz HTTP/1.1\r\nX: ", b"y"),
    (b"GET /healthz HTTP/1.1\r\n", b"y: z\r\n"),
    (b"GET /", b"y"),
    (head(b"Transfer-Encoding: chunked") + b"0\r\n", b"y: z\r\n"),
)
HEALTH_REQUEST = head(method=b"GET", path=b"/healthz")


def noise(random: Random) -> Parts:
    yield random.randbytes(random.choice((1, 16, 400, 5000)))


def garbled_request(random: Random) -> Parts:
    """A correct request with some bytes changed."""
    request = bytearray(VALID_REQUEST)
    for _ in range(random.randint(1, 4)):
        request[random.randrange(len(VALID_REQUEST) - len(BODY))] = random.randrange(256)
    yield bytes(request)


def strange_lines(random: Random) -> Parts:
    """First lines of every kind."""
    yield random.choice((
        head(path=b"/\xff\xfe\xc3"), head(path=b"*", method=b"OPTIONS"), head(path=b"http://[::1"), head(path=b"//"),
        head(path=b"/" + b"%00" * 50), head(path=b"/" + b"a" * 70_000), head(path=b"/v1/models/%ff%c3?version=%00"),
        head(path=b"x:443", method=b"CONNECT"), head(version=b"HTTP/9.9"), head(version=b"HTTP/0.9"), b"GET /\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\r\n" * 5000,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        head(method=b"BREW"), head(method=b"get"), head(b"Upgrade: websocket", b"Connection: Upgrade", method=b"GET"),
        head(b"Upgrade: h2c", b"Connection: Upgrade, HTTP2-Settings", b"HTTP2-Settings: AA"),
        head(b"Content-Length: 5", b"Expect: 100-continue"),
        head(b"Content-Length: 5", b"Expect: 7", version=b"HTTP/1.0"),
        head(path=b"/v2/models/" + b"../" * 30 + b"etc/passwd/infer"),
        head(path=b"/v2/models/lm/versions/%31%00/infer"),
    ))  # fmt: skip


def broken_chunks(random: Random) -> Parts:
    """Chunked bodies that are wrong or stop."""
    yield head(b"Transfer-Encoding: chunked")
    yield random.choice((
        b"zz\r\nabc\r\n0\r\n\r\n", b"-1\r\n\r\n", b"ffffffffffffffffff\r\nabc", b"7fffffffffffffff\r\nabc", b"5\r\nabc",
        b"3\r\nabcdef\r\n0\r\n\r\n", b"3;" + b"x" * 100_000 + b"\r\nabc\r\n0\r\n\r\n",
        b"0\r\n" + b"T: x\r\n" * 5000 + b"\r\n",
        b"1\r\n{\r\n" * 3000, b"3\nabc\n0\n\n", b"0x3\r\nabc\r\n0\r\n\r\n", b"", b"0\r\n\r\n", b"0\r\n\r", bytes(100),
    ))  # fmt: skip


def smuggled_request(random: Random) -> Parts:
    """Bodies of which two readers may see different ends; another request lies inside."""
    inside = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HEALTH_REQUEST), HEALTH_REQUEST)
    lengths = (b"Content-Length: 4", b"Content-Length: %d" % len(inside))
    yield random.choice((
        head(*lengths) + inside, head(lengths[0], b"Transfer-Encoding: chunked") + inside,
        head(b"Transfer-Encoding: chunked", lengths[1]) + inside, head(b"Content-Length: 4, 9") + inside,
        head(b"Transfer-Encoding: chunked, identity") + inside, head(b"Transfer-Encoding: xchunked") + inside,
        head(b"Transfer-Encoding : chunked", lengths[0]) + inside, head(b"Content-Length: +4") + inside,
        head(b"Transfer-Encoding: identity", b"Transfer-Encoding: chunked", lengths[0]) + inside,
        head(b"Content-Length: 4\x0b") + inside, head(b"Content-Length: 0x4") + inside,
        head(b"Content-Length: ") + inside,
        head(b"X: y\nContent-Length: 4") + inside, head(b"X: y\rTransfer-Encoding: chunked", lengths[0]) + inside,
        head(b"Content-Length: 99999999999999999999") + inside, head(b"Content-Length: -4") + inside,
    ))  # fmt: skip


def huge_headers(random: Random) -> Parts:
    """Headers that are very long, or very many."""
    if random.random() < 0.5:
        yield head(b"X: " + b"y" * random.choice((10_000, 100_000, 1_000_000)), method=b"GET", path=b"/healthz")
    else:
        yield head(
            *[b"X-%d: y" % i for i in range(random.choice((100, 2000, 20_000)))], method=b"GET", path=b"/healthz"
        )


def half_request(random: Random) -> Parts:
    yield VALID_REQUEST[: random.randrange(1, len(VALID_REQUEST))]


def wrong_length(random: Random) -> Parts:
    """More or less announced than there comes."""
    yield head(b"Content-Length: %d" % random.choice((0, 1, len(BODY) - 1, len(BODY) + 1, 10**9, 2**63, 2**64))) + BODY


def pipelined_requests(random: Random) -> Parts:
    """Many at once, and perhaps a half one."""
    yield VALID_REQUEST * PIPELINED_REQUESTS
    yield random.choice((CLOSING_REQUEST, b"", VALID_REQUEST[:50]))


def pipelined_garbage(random: Random) -> Parts:
    """Garbage right after correct requests."""
    yield VALID_REQUEST * 3 + random.randbytes(50)


def slow(random: Random) -> Parts:
    """Byte by byte, then no more."""
    for byte in VALID_REQUEST[: random.randrange(5, 60)]:
        yield bytes([byte])
        time.sleep(0.004)


def tiny_chunks(random: Random) -> Parts:
    """A correct body of many chunks, in many packets."""
    chunks = b"".join(b"1\r\n%b\r\n" % bytes([byte]) for byte in BODY) + b"0\r\n\r\n"
    yield head(b"Transfer-Encoding: chunked")
    step = random.choice((7, 100, 10_000))
    for start in range(0, len(chunks), step):
        yield chunks[start : start + step]


ACTS: tuple[Callable[[Random], Parts], ...] = (
    noise,
    garbled_request,
    strange_lines,
    broken_chunks,
    smuggled_request,
    huge_headers,
    half_request,
    wrong_length,
    pipelined_requests,
    pipelined_garbage,
    slow,
    tiny_chunks,
)
