"""Raw connections from addresses of one's choice, and what a server holds."""

from __future__ import annotations

import json
import re
import socket
import time
from pathlib import Path

import numpy as np

from tests.support.layers import DIM, make_contexts

ROWS = make_contexts(rows=8, seed=6).contexts
INFER = "/v2/models/lm/infer"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
METRICS = HEALTH.replace(b"/healthz", b"/metrics")
MIB = 1 << 20


def connect(server, address="127.0.0.1", receive_bytes=None, timeout=60):
    """A connection that comes from `address` of the loopback interface."""
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    if receive_bytes is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(timeout)
    connection.bind((address, 0))
    connection.connect((host, int(port)))
    return connection


def request(path, body=b"", *headers, method="POST", length=None, host="Host: localhost"):
    """The bytes of a request; `length` in place of the body's."""
    lines = [f"{method} {path} HTTP/1.1", host, *headers]
    if body or length is not None:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*(line for line in lines if line), "", ""]).encode() + body


def topk_body(rows=1, **fields):
    return json.dumps({"model": "lm", "contexts": ROWS[:rows].tolist(), "k": 3} | fields).encode()


def topk(*headers, **fields):
    return request("/v1/topk", topk_body(**fields), *headers)


def infer(rows, *headers, model="lm", k=3, **parameters):
    """A binary request for `rows` [n, d]."""
    rows = np.ascontiguousarray(rows, np.float32)
    context = {"name": "context", "shape": list(rows.shape), "datatype": "FP32"}
    context["parameters"] = {"binary_data_size": rows.nbytes}
    text = json.dumps({"inputs": [context], "parameters": {"k": k, "binary_data_output": True} | parameters}).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    return request(f"/v2/models/{model}/infer", text + rows.tobytes(), length, *headers)


def many_rows(count):
    return np.resize(ROWS, (count, DIM))


def read_responses(connection):
    """Status and body of each response, one after the other; interim ones are left out."""
    with connection.makefile("rb") as stream:
        while line := stream.readline():
            headers = dict(line.strip().lower().split(b": ", 1) for line in iter(stream.readline, b"\r\n"))
            body = stream.read(int(headers.get(b"content-length", 0)))
            if int(line.split()[1]) >= 200:
                yield int(line.split()[1]), body


def read_response(connection):
    """Status and body of the one response that comes."""
    return next(read_responses(connection))


def converse(server, *parts, pause=0.05, **options):
    """Send the parts one after the other, end this side, and read all that comes until the server closes, too."""
    with connect(server, **options) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(pause)
        connection.shutdown(socket.SHUT_WR)
        return read_all(connection)


def read_all(connection):
    """All bytes until the server closes the connection."""
    content = b""
    try:
        while part := connection.recv(1 << 16):
            content += part
    except ConnectionResetError:
        pass
    return content


def statuses(content):
    """The statuses of responses in a row, but for interim ones."""
    codes = [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3}) ", content)]
    return [code for code in codes if code >= 200]


def is_closed(connection, seconds):
    """Whether the server closes a connection within so many seconds, whatever it sends before."""
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        pass
    return True


def read_memory(server, field="VmRSS"):
    """Resident memory of the server in bytes; VmHWM for the most since `forget_peak`."""
    text = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", text)[1]) << 10


def forget_peak(server):
    """Let the server's peak of memory be what it has now; returns that."""
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    return read_memory(server)


def read_metric(server, name):
    for line in server.http.get("/metrics").text.splitlines():
        if line.startswith(f"{name} "):
            return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def wait_until(condition, seconds=60):
    """Wait until `condition()` is true; returns what it gave."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"{value!r} after {seconds} s")


def check_neighbour(server):
    """A new client is answered, and nothing is held of others."""
    with connect(server, "127.0.0.9") as connection:
        connection.sendall(topk())
        status, body = read_response(connection)
    assert (status, set(json.loads(body))) == (200, {"model", "version", "ids", "logprobs", "scored", "normalizer"})
    for what in ("rows", "bytes"):
        wait_until(lambda what=what: read_metric(server, f"shortlist_held_{what}") == 0)
