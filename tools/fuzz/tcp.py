"""Raw bytes at a real server: every neighbour is answered at once, and nothing grows."""

from __future__ import annotations

import os
import re
import socket
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.support.layers import RunningServer, make_small_repository

from .acts import ACTS, CLOSING_REQUEST, ENDLESS_HEADS, PIPELINED_REQUESTS, Parts

SILENCE_SECONDS = 0.15  # to wait for more of a response
MAX_NEIGHBOUR_SECONDS = 2.0  # for a neighbour's response: the machine may be busy
MAX_SERVER_GROWTH_BYTES = 48 << 20
MAX_MORE_FILES = 4  # open at the end
PERMITTED_STATUSES = (501, 503)
STATUS_PATTERN = re.compile(rb"HTTP/1\.[01] (\d{3})")
HEAD_CHUNK_BYTES = 1 << 18
HEAD_CHUNKS = 256  # chunks of a head that does not end


@dataclass
class Report:
    """The outcome of a run. statuses: of all responses. wrong: what must not happen, each sentence once."""

    rounds: int = 0
    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    growth: int = 0
    files: int = 0
    slowest: float = 0.0
    seconds: float = 0.0

    def note(self, text: str) -> None:
        """Add a sentence to `wrong`, unless it is there."""
        if text not in self.wrong:
            self.wrong.append(text)


@dataclass
class Resources:
    """What a process holds: resident memory in bytes, and open files."""

    memory: int
    files: int

    @classmethod
    def measure(cls, pid: int) -> Resources:
        """Measure the process `pid` now."""
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return cls(pages * os.sysconf("SC_PAGE_SIZE"), len(list(Path(f"/proc/{pid}/fd").iterdir())))


class GarbageSender:
    """Sends hostile requests to a server, and correct ones beside them."""

    def __init__(self, server: RunningServer, seed: int) -> None:
        self.pid = server.process.pid
        host, port = server.url.removeprefix("http://").split(":")
        self.address = host, int(port)
        self.seed, self.report = seed, Report()
        self.usual_response = self.ask_as_neighbour()

    def connect(self, patience: float) -> socket.socket:
        return socket.create_connection(self.address, patience)

    def ask_as_neighbour(self) -> bytes:
        """Send a correct request on a connection of its own; returns the whole response."""
        with self.connect(MAX_NEIGHBOUR_SECONDS) as connection:
            connection.sendall(CLOSING_REQUEST)
            return b"".join(iter(lambda: connection.recv(65_536), b""))

    def run_round(self, number: int, acts: tuple[Callable[[Random], Parts], ...] = ACTS) -> None:
        """Play one act, then check that a neighbour is served."""
        random = Random(f"{self.seed} {number}")
        act = acts[number % len(acts)]
        with self.connect(MAX_NEIGHBOUR_SECONDS) as connection:
            content = converse(connection, act(random))
            self.judge_statuses(act.__name__, content)
            self.check_neighbour(act.__name__, number)
            if random.random() < 0.3:  # a reset instead of an orderly end
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.report.rounds += 1

    def judge_statuses(self, name: str, content: bytes) -> None:
        """Count the statuses of the responses, and note those that must not be."""
        statuses = [int(status) for status in STATUS_PATTERN.findall(content)]
        self.report.statuses.update(statuses)
        for status in statuses:
            if status >= 500 and status not in PERMITTED_STATUSES:
                self.report.note(f"{name} was answered {status}: {content[-200:]!r}")
        if name == "smuggled_request" and len(statuses) > 1 and b'"live"' in content:
            self.report.note(f"smuggled: the request inside was answered after {statuses[0]}")
        if name == "pipelined_requests" and statuses[:PIPELINED_REQUESTS] != [200] * PIPELINED_REQUESTS:
            self.report.note(f"pipelined requests were answered {statuses}")
        if name == "tiny_chunks" and statuses != [200]:
            self.report.note(f"tiny chunks were answered {statuses}")

    def check_neighbour(self, name: str, number: int) -> None:
        """Check that a correct request on another connection gets the right response in time."""
        start = time.monotonic()
        try:
            answer = self.ask_as_neighbour()
            if answer.partition(b"\r\n\r\n")[2] != self.usual_response.partition(b"\r\n\r\n")[2]:
                self.report.note(f"a neighbour of {name} was answered {answer[:300]!r} (round {number})")
        except OSError as error:
            self.report.note(f"a neighbour of {name} was not answered: {error!r} (round {number})")
        self.report.slowest = max(self.report.slowest, time.monotonic() - start)


def converse(connection: socket.socket, parts: Parts) -> bytes:
    """Send the parts, as far as the server reads them; returns what it sent until it fell silent."""
    content = b""
    with suppress(OSError):
        for part in parts:
            connection.sendall(part)
    connection.settimeout(SILENCE_SECONDS)
    with suppress(OSError):
        while part := connection.recv(65_536):
            content += part
    return content


def run(server: RunningServer, seconds: float, seed: int) -> Report:
    """Play acts for `seconds`; memory and open files are compared with those after the first rounds."""
    garbage = GarbageSender(server, seed)
    start, number, before = time.monotonic(), 0, None
    while time.monotonic() - start < seconds or before is None:
        garbage.run_round(number)
        number += 1
        if number == 3 * len(ACTS):
            before = measure_when_idle(garbage.pid)
    after, report = measure_when_idle(garbage.pid), garbage.report
    report.growth, report.files = after.memory - before.memory, after.files - before.files
    report.seconds = time.monotonic() - start
    if report.growth > MAX_SERVER_GROWTH_BYTES:
        report.note(f"memory grew by {report.growth >> 20} MiB")
    if report.files > MAX_MORE_FILES:
        report.note(f"{report.files} files more are open than before")
    if server.process.poll() is not None:
        report.note("the server ended")
    return report


def measure_when_idle(pid: int) -> Resources:
    """Measure a process once its closed connections are gone."""
    time.sleep(0.5)
    return Resources.measure(pid)


def send_endless_heads(server: RunningServer, seed: int) -> Report:
    """Heads and trailers without end: the server must have enough of them before its memory is full."""
    garbage = GarbageSender(server, seed)
    before = measure_when_idle(garbage.pid)
    for number, (start, filling) in enumerate(ENDLESS_HEADS):
        with garbage.connect(5 * MAX_NEIGHBOUR_SECONDS) as connection, suppress(OSError):
            connection.sendall(start)
            for _ in range(HEAD_CHUNKS):
                connection.sendall(filling * (HEAD_CHUNK_BYTES // len(filling)))
            time.sleep(SILENCE_SECONDS)
            growth = Resources.measure(garbage.pid).memory - before.memory
            if growth > MAX_SERVER_GROWTH_BYTES:
                garbage.report.note(
                    f"{HEAD_CHUNKS * HEAD_CHUNK_BYTES >> 20} MiB after {start[:20]!r} took {growth >> 20} MiB of memory"
                )
        garbage.check_neighbour("endless", number)
    return garbage.report


def find_failures(log: list[str]) -> list[str]:
    """The first traceback in a server's log."""
    text = "".join(log)
    start = text.find("Traceback")
    return [f"the server's log says {text[max(start - 200, 0) : start + 3000]}"] if start >= 0 else []


def main(seconds: int, seed: int) -> bool:
    """Run all acts and print the outcome; returns True if nothing was wrong."""
    with tempfile.TemporaryDirectory() as root:
        make_small_repository(Path(root))
        with RunningServer(Path(root)) as server:
            report = run(server, seconds, seed)
            report.wrong += send_endless_heads(server, seed).wrong
            report.wrong += find_failures(server.log)
    print(f"tcp: {report.rounds} rounds in {report.seconds:.0f} s, slowest neighbour {report.slowest * 1000:.0f} ms")
    print("  statuses: " + ", ".join(f"{status} {count}" for status, count in sorted(report.statuses.items())))
    print(f"  memory grew by {report.growth / 2**20:.1f} MiB, open files by {report.files}")
    for line in report.wrong:
        print(f"  WRONG {line}")
    return not report.wrong
