"""Every kind of client, used alike, and a server that answers as a script says."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import shortlist
from shortlist.client.base_client import make_key_header

KINDS = ("sockets", "unix", "httpx", "async sockets", "async unix", "async httpx")
OWN_KINDS = tuple(kind for kind in KINDS if "httpx" not in kind)
LINGER = struct.pack("ii", 1, 0)  # closing sends a reset


class Close:
    """A step of a script: close the connection, with a reset or without."""

    def __init__(self, *, reset: bool = False) -> None:
        self.reset = reset


CLOSE, RESET = Close(), Close(reset=True)
Step = bytes | float | Close  # bytes are sent, seconds are waited
Script = Callable[[int], list[Step]]  # of the number of a request, from 0


class ScriptedServer:
    """Listens on a port and on a Unix socket. requests: the number of the connection, head and body of each."""

    def __init__(self, folder: Path, script: Script) -> None:
        self.script, self.requests = script, []
        self.connection_count, self.lock = 0, threading.Lock()
        self.path = folder / "scripted.sock"
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(str(self.path))
        unix.listen()
        self.listeners = [socket.create_server(("127.0.0.1", 0)), unix]
        self.url, self.unix_url = f"http://127.0.0.1:{self.listeners[0].getsockname()[1]}", f"unix://{self.path}"
        self.connections: list[socket.socket] = []
        self.threads: list[threading.Thread] = []
        for listener in self.listeners:
            self.start(self.accept, listener)

    def start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            self.connection_count += 1
            self.start(self.serve, connection, self.connection_count)

    def serve(self, connection: socket.socket, number: int) -> None:
        with connection:
            while (request := read_request(connection)) is not None:
                with self.lock:
                    index = len(self.requests)
                    self.requests.append((number, *request))
                try:
                    if not play(connection, self.script(index)):
                        return
                except OSError:
                    return

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (*self.listeners, *self.connections):
            with contextlib.suppress(OSError):  # closed already
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self.threads:
            thread.join(timeout=10)


def play(connection: socket.socket, steps: list[Step]) -> bool:
    """Take the steps; returns whether the connection is still open."""
    for step in steps:
        if isinstance(step, bytes):
            connection.sendall(step)
        elif isinstance(step, Close):
            if step.reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
            return False
        else:
            time.sleep(step)
    return True


def read_request(connection: socket.socket) -> tuple[bytes, bytes] | None:
    """Head and body of a request, None where the client has closed the connection."""
    data = b""
    try:
        while b"\r\n\r\n" not in data:
            data += (more := connection.recv(1 << 16))
            if not more:
                return None
        head, _, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        while length is not None and len(body) < int(length[1]):
            body += connection.recv(1 << 16)
    except OSError:
        return None
    return head, body


def respond(content: bytes, status: str = "200 OK", **headers: str) -> bytes:
    """A whole response."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(content)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + content


class RunClient:
    """An asyncio client used as a blocking one, in an event loop of its own."""

    def __init__(self, client: shortlist.AsyncClient) -> None:
        self.client, self.runner = client, asyncio.Runner()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.client, name)
        if not asyncio.iscoroutinefunction(value):
            return value
        return lambda *arguments, **options: self.runner.run(value(*arguments, **options))

    def close(self) -> None:
        with self.runner:
            self.runner.run(self.client.close())

    def __enter__(self) -> RunClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_client(kind: str, server: Any, **options: Any) -> Any:
    """A client of one of KINDS, for a server with `url` and `unix_url`."""
    url = server.unix_url if "unix" in kind else server.url
    client = (shortlist.AsyncClient if "async" in kind else shortlist.Client)(url, **options)
    if "httpx" in kind:
        client.open_httpx(make_key_header(options.get("api_key")), {"verify": True, "proxy": None})
    return RunClient(client) if "async" in kind else client
