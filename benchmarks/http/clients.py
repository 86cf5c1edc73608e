"""`client`: what our clients take beside a bare socket that sends the same bytes to the same server."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import shortlist
from rich.console import Console
from rich.table import Table
from shortlist.client.messages import Request, Response
from shortlist.client.transport.blocking import BlockingTransport, connect_unix
from shortlist.core.results import FloatArray
from shortlist.errors import ServerError

from benchmarks.common.processes import Process, free_port, pick_cores, python_command
from benchmarks.http.servers.bundles import CONSTANT_SHAPE, MODEL_NAME, make_constant_bundle

BATCH_ROWS = 16
SETS = 5  # that the calls of a pair come in
WARM_CALLS = 50  # before each set
READ_BYTES = 1 << 20
SOCKET_SECONDS = 30.0
IMPORT_RUNS = 15
IMPORT_CODE = f"""
import sys, time
import numpy as np
start = time.perf_counter()
import shortlist
shortlist.Client(sys.argv[1]).topk("{MODEL_NAME}", np.zeros((1, {CONSTANT_SHAPE[1]}), np.float32), 5)
print(time.perf_counter() - start)
"""
Call = Callable[[], Awaitable[object]]


class RecordingClient(shortlist.Client):
    """A client that remembers the bytes of its last request."""

    recording, is_recording = b"", True

    def send(self, request: Request) -> Response:
        """Send, and remember."""
        if not self.is_recording:
            return super().send(request)
        assert isinstance(self.transport, BlockingTransport), "the server is on this machine"
        head = self.transport.write_head(request.method, request.path, request.headers, request.size)
        self.recording = head + request.content
        return super().send(request)


class BareSocket:
    """A kept connection that sends the same bytes again and again, and knows how long the response is."""

    def __init__(self, sock: socket.socket, request: bytes) -> None:
        self.socket, self.request = sock, request
        sock.settimeout(SOCKET_SECONDS)
        self.size = self.measure_response()
        sock.settimeout(None)

    def measure_response(self) -> int:
        """Bytes of a response: its head, and the body that it announces; raises ServerError for an error."""
        self.socket.sendall(self.request)
        head, _, body = self.socket.recv(READ_BYTES).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise ServerError(f"the server answered {head[:60]!r} to the bytes of the client")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += self.socket.recv(READ_BYTES)
        return len(head) + len(b"\r\n\r\n") + length

    async def ask(self) -> None:
        """Send, and receive the whole response."""
        self.socket.sendall(self.request)
        count = 0
        while count < self.size:
            count += len(self.socket.recv(READ_BYTES))


@dataclass
class Pair:
    """A client and the bare socket that it is compared with: how each asks, and the microseconds of its calls."""

    name: str
    ask_socket: Call
    ask_client: Call
    socket_us: list[float] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)

    async def measure(self, calls: int, warm_calls: int) -> None:
        """Ask in turns, one call each, so that whatever disturbs the machine disturbs both."""
        for number in range(warm_calls + calls):
            for ask, times in ((self.ask_socket, self.socket_us), (self.ask_client, self.client_us)):
                start = time.perf_counter()
                await ask()
                if number >= warm_calls:
                    times.append((time.perf_counter() - start) * 1e6)

    @property
    def ratio(self) -> float:
        """The client's median over the socket's."""
        return round(statistics.median(self.client_us) / statistics.median(self.socket_us), 3)


def run_clients(cache: Path, rounds: int, k: int) -> None:
    """Start the server, measure every client beside a socket, then imports; print the table and a line of JSON."""
    repository, path = make_constant_bundle(cache).parent.parent, (cache / "shortlist.sock").absolute()
    port = free_port()
    flags = ("--port", port, "--threads", 1, "--unix-socket", path)
    with Process("clients", python_command("shortlist", "serve", repository, *flags), port, cache / "logs") as server:
        with shortlist.Client(server.url) as client:
            server.wait_ready(lambda: client.topk(MODEL_NAME, make_rows(1), k))
        os.sched_setaffinity(0, {pick_cores()[1]})
        pairs = asyncio.run(measure_pairs(server.url, f"unix://{path}", rounds, k))
        seconds = [measure_import(server.url, cache) for _ in range(1 + IMPORT_RUNS)][1:]  # the first compiles
    print_table(pairs, rounds)
    print(json.dumps(summarise(pairs, rounds, statistics.median(seconds))))


def make_rows(rows: int) -> FloatArray:
    """Context vectors [rows, d]."""
    return np.random.default_rng(1).standard_normal((rows, CONSTANT_SHAPE[1])).astype(np.float32)


async def measure_pairs(url: str, unix_url: str, rounds: int, k: int) -> list[Pair]:
    """Every pair in `SETS` sets, between those of the others."""
    row, batch = make_rows(1), make_rows(BATCH_ROWS)
    with RecordingClient(url) as client, RecordingClient(unix_url) as unix, ExitStack() as stack:
        async with shortlist.AsyncClient(url) as waiting:
            pairs = [
                Pair("client", record(stack, client, row, k), ask(client, row, k)),
                Pair("async", record(stack, client, row, k), lambda: waiting.topk(MODEL_NAME, row, k)),
                Pair("batch16", record(stack, client, batch, k), ask(client, batch, k)),
                Pair("unix", record(stack, unix, row, k), ask(unix, row, k)),
            ]
            client.is_recording = unix.is_recording = False
            for _ in range(SETS):
                for pair in pairs:
                    await pair.measure(rounds // SETS, WARM_CALLS)
    return pairs


def ask(client: shortlist.Client, rows: FloatArray, k: int) -> Call:
    """A call of a client."""

    async def call() -> object:
        return client.topk(MODEL_NAME, rows, k)

    return call


def record(stack: ExitStack, client: RecordingClient, rows: FloatArray, k: int) -> Call:
    """A call of a bare socket, which `stack` closes, that sends what the client sends."""
    client.topk(MODEL_NAME, rows, k)
    return BareSocket(stack.enter_context(connect(client)), client.recording).ask


def connect(client: RecordingClient) -> socket.socket:
    """A connection to a client's server."""
    assert isinstance(client.transport, BlockingTransport)
    address = client.transport.address
    if address.is_unix:
        return connect_unix(address.path, SOCKET_SECONDS)
    sock = socket.create_connection((address.host, address.port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def measure_import(url: str, cache: Path) -> float:
    """Seconds of `import shortlist` and a first answer, behind `import numpy`, in a process of its own.

    The compiled code of modules is kept in `cache`, as where a package is installed.
    """
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = str((cache / "pycache").absolute())
    command = [sys.executable, "-c", IMPORT_CODE, url]
    return float(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)


def summarise(pairs: list[Pair], rounds: int, import_seconds: float) -> dict[str, float]:
    """The JSON line: ratios of the medians, milliseconds of the imports, and the medians in microseconds."""
    figures: dict[str, float] = {f"{pair.name}_ratio": pair.ratio for pair in pairs}
    figures["import_ms"] = round(import_seconds * 1e3, 1)
    for pair in pairs:
        figures[f"{pair.name}_us"] = round(statistics.median(pair.client_us), 1)
        figures[f"{pair.name}_socket_us"] = round(statistics.median(pair.socket_us), 1)
    return figures | {"rounds": rounds}


def print_table(pairs: list[Pair], rounds: int) -> None:
    table = Table(title=f"one request at a time, rows of {CONSTANT_SHAPE[1]} floats; {rounds} calls, us")
    for column in ("who", "p10", "p50", "p90"):
        table.add_column(column, justify="left" if column == "who" else "right")
    for pair in pairs:
        for name, times in ((f"{pair.name}: socket", pair.socket_us), (f"{pair.name}: client", pair.client_us)):
            deciles = statistics.quantiles(times, n=10)
            table.add_row(name, *(f"{deciles[index]:,.0f}" for index in (0, 4, 8)))
    Console(width=120).print(table)
