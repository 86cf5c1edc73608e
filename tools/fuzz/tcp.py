"""Raw bytes at a real server: every neighbour is answered at once, and nothing grows."""

from __future__ import annotations

import os
import re
import socket
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import orjson

from tests.support.layers import DIM, RunningServer, make_small_repository

PATIENCE = 0.15  # seconds to wait for more of an answer
ATONCE = 2.0  # seconds for a neighbour's answer: the machine may be busy
GROWTH = 48 << 20
SLACK = 4  # open files more or less
PERMITTED = (501, 503)
STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})")
PATH = b"/v2/models/lm/infer"
BODY = orjson.dumps({"inputs": [{"name": "context", "datatype": "FP32", "shape": [1, DIM], "data": [0.5] * DIM}]})
PIPELINED = 40
CHUNK = 1 << 18
FILLINGS = 256  # chunks of a head that does not end

Parts = Iterator[bytes]


def head(*headers: bytes, method: bytes = b"POST", path: bytes = PATH, version: bytes = b"HTTP/1.1") -> bytes:
    """A request's head, with whatever headers."""
    return b"\r\n".join([b" ".join((method, path, version)), b"Host: x", *headers, b"", b""])


GOOD = head(b"Content-Length: %d" % len(BODY)) + BODY
LAST = head(b"Content-Length: %d" % len(BODY), b"Connection: close") + BODY
ENDLESS = (
    (b"GET /healthz HTTP/1.1\r\nX: ", b"y"),
    (b"GET /healthz HTTP/1.1\r\n", b"y: z\r\n"),
    (b"GET /", b"y"),
    (head(b"Transfer-Encoding: chunked") + b"0\r\n", b"y: z\r\n"),
)
HEALTH = head(method=b"GET", path=b"/healthz")


def noise(random: Random) -> Parts:
    yield random.randbytes(random.choice((1, 16, 400, 5000)))


def garbled(random: Random) -> Parts:
    """A correct request with some bytes changed."""
    request = bytearray(GOOD)
    for _ in range(random.randint(1, 4)):
        request[random.randrange(len(GOOD) - len(BODY))] = random.randrange(256)
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


def smuggled(random: Random) -> Parts:
    """Bodies of which two readers may see different ends; another request lies inside."""
    inside = b"%x\r\n%b\r\n0\r\n\r\n" % (len(HEALTH), HEALTH)
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
    """Long ones, or many."""
    if random.random() < 0.5:
        yield head(b"X: " + b"y" * random.choice((10_000, 100_000, 1_000_000)), method=b"GET", path=b"/healthz")
    else:
        yield head(
            *[b"X-%d: y" % i for i in range(random.choice((100, 2000, 20_000)))], method=b"GET", path=b"/healthz"
        )


def half_request(random: Random) -> Parts:
    yield GOOD[: random.randrange(1, len(GOOD))]


def wrong_length(random: Random) -> Parts:
    """More or less announced than there comes."""
    yield head(b"Content-Length: %d" % random.choice((0, 1, len(BODY) - 1, len(BODY) + 1, 10**9, 2**63, 2**64))) + BODY


def pipelined(random: Random) -> Parts:
    """Many at once, and perhaps a half one."""
    yield GOOD * PIPELINED
    yield random.choice((LAST, b"", GOOD[:50]))


def pipelined_garbage(random: Random) -> Parts:
    """Garbage right after correct requests."""
    yield GOOD * 3 + random.randbytes(50)


def slow(random: Random) -> Parts:
    """Byte by byte, then no more."""
    for byte in GOOD[: random.randrange(5, 60)]:
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
    noise, garbled, strange_lines, broken_chunks, smuggled, huge_headers, half_request, wrong_length, pipelined,
    pipelined_garbage, slow, tiny_chunks,
)  # fmt: skip


@dataclass
class Report:
    """What came of it. statuses: of all answers; wrong: what must not be, each once."""

    rounds: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    growth: int = 0
    files: int = 0
    slowest: float = 0.0
    seconds: float = 0.0

    def note(self, text: str) -> None:
        """Once."""
        if text not in self.wrong:
            self.wrong.append(text)


@dataclass
class Resources:
    """What a process holds."""

    memory: int
    files: int

    @classmethod
    def of(cls, pid: int) -> Resources:
        """Now."""
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(list(Path(f"/proc/{pid}/fd").iterdir())))


class Garbage:
    """A server, and what it is sent."""

    def __init__(self, server: RunningServer, seed: int) -> None:
        self.pid = server.process.pid
        host, port = server.url.removeprefix("http://").split(":")
        self.address = host, int(port)
        self.seed, self.report = seed, Report()
        self.expected = self.answer()

    def connect(self, patience: float) -> socket.socket:
        return socket.create_connection(self.address, patience)

    def answer(self) -> bytes:
        """A neighbour's answer, all of it."""
        with self.connect(ATONCE) as connection:
            connection.sendall(LAST)
            return b"".join(iter(lambda: connection.recv(65_536), b""))

    def round(self, number: int, acts: tuple[Callable[[Random], Parts], ...] = ACTS) -> None:
        """One act, and a look at the neighbour."""
        random = Random(f"{self.seed} {number}")
        act = acts[number % len(acts)]
        with self.connect(ATONCE) as connection:
            heard = conversation(connection, act(random))
            self.judge(act.__name__, heard)
            self.neighbour(act.__name__, number)
            if random.random() < 0.3:  # a reset instead of an orderly end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.report.rounds += 1

    def judge(self, name: str, heard: bytes) -> None:
        """The answers' statuses."""
        statuses = [int(status) for status in STATUS.findall(heard)]
        self.report.statuses.update(statuses)
        for status in statuses:
            if status >= 500 and status not in PERMITTED:
                self.report.note(f"{name} was answered {status}: {heard[-200:]!r}")
        if name == "smuggled" and len(statuses) > 1 and b'"live"' in heard:
            self.report.note(f"smuggled: the request inside was answered after {statuses[0]}")
        if name == "pipelined" and statuses[:PIPELINED] != [200] * PIPELINED:
            self.report.note(f"pipelined requests were answered {statuses}")
        if name == "tiny_chunks" and statuses != [200]:
            self.report.note(f"tiny chunks were answered {statuses}")

    def neighbour(self, name: str, number: int) -> None:
        """A correct request on a connection of its own."""
        started = time.monotonic()
        try:
            answer = self.answer()
            if answer.partition(b"\r\n\r\n")[2] != self.expected.partition(b"\r\n\r\n")[2]:
                self.report.note(f"a neighbour of {name} was answered {answer[:300]!r} (round {number})")
        except OSError as error:
            self.report.note(f"a neighbour of {name} was not answered: {error!r} (round {number})")
        self.report.slowest = max(self.report.slowest, time.monotonic() - started)


def conversation(connection: socket.socket, parts: Parts) -> bytes:
    """Say it, as far as it is listened to; what was heard until silence."""
    heard = b""
    with suppress(OSError):
        for part in parts:
            connection.sendall(part)
    connection.settimeout(PATIENCE)
    with suppress(OSError):
        while part := connection.recv(65_536):
            heard += part
    return heard


def run(server: RunningServer, seconds: float, seed: int) -> Report:
    """Rounds for so long; memory and files are compared with those after the first of each act."""
    garbage = Garbage(server, seed)
    started, number, before = time.monotonic(), 0, None
    while time.monotonic() - started < seconds or before is None:
        garbage.round(number)
        number += 1
        if number == 3 * len(ACTS):
            before = settled(garbage.pid)
    after, report = settled(garbage.pid), garbage.report
    report.growth, report.files = after.memory - before.memory, after.files - before.files
    report.seconds = time.monotonic() - started
    if report.growth > GROWTH:
        report.note(f"memory grew by {report.growth >> 20} MiB")
    if report.files > SLACK:
        report.note(f"{report.files} files more are open than before")
    if server.process.poll() is not None:
        report.note("the server ended")
    return report


def settled(pid: int) -> Resources:
    """Once closed connections are gone."""
    time.sleep(0.5)
    return Resources.of(pid)


def endless(server: RunningServer, seed: int) -> Report:
    """Heads and trailers without end: the server must have enough of them before its memory is full."""
    garbage = Garbage(server, seed)
    before = settled(garbage.pid)
    for number, (start, filling) in enumerate(ENDLESS):
        with garbage.connect(5 * ATONCE) as connection, suppress(OSError):
            connection.sendall(start)
            for _ in range(FILLINGS):
                connection.sendall(filling * (CHUNK // len(filling)))
            time.sleep(PATIENCE)
            grown = Resources.of(garbage.pid).memory - before.memory
            if grown > GROWTH:
                garbage.report.note(
                    f"{FILLINGS * CHUNK >> 20} MiB after {start[:20]!r} took {grown >> 20} MiB of memory"
                )
        garbage.neighbour("endless", number)
    return garbage.report


def failures(log: list[str]) -> list[str]:
    """The first traceback in a server's log."""
    text = "".join(log)
    start = text.find("Traceback")
    return [f"the server's log says {text[max(start - 200, 0) : start + 3000]}"] if start >= 0 else []


def main(seconds: int, seed: int) -> bool:
    """Run and print; whether all was right."""
    with tempfile.TemporaryDirectory() as root:
        make_small_repository(Path(root))
        with RunningServer(Path(root)) as server:
            report = run(server, seconds, seed)
            report.wrong += endless(server, seed).wrong
            report.wrong += failures(server.log)
    print(f"tcp: {report.rounds} rounds in {report.seconds:.0f} s, slowest neighbour {report.slowest * 1000:.0f} ms")
    print("  statuses: " + ", ".join(f"{status} {count}" for status, count in sorted(report.statuses.items())))
    print(f"  memory grew by {report.growth / 2**20:.1f} MiB, open files by {report.files}")
    for line in report.wrong:
        print(f"  WRONG {line}")
    return not report.wrong
