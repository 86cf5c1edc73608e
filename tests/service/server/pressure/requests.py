"""Questions to a slow model, and what its server holds meanwhile."""

from __future__ import annotations

import http.client
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx

from tests.support.layers import make_contexts
from tests.support.servers.responses import read_refusal

CLASSES, DIM = 120_000, 64  # some .3 ms a row
LENGTH = "Inference-Header-Content-Length"
INFER = "/v2/models/slow/infer"
ROWS = make_contexts(rows=4000, dim=DIM, seed=3).contexts
MANY = 3000  # rows that keep the server busy for about a second
PATIENT = ("--request-timeout", "300", "--json-limit", "16777216")
MICROSECONDS = 1_000_000


def read_held(server, what="rows"):
    for line in server.http.get("/metrics").text.splitlines():
        if line.startswith(f"shortlist_held_{what} "):
            return float(line.split()[1])
    raise AssertionError("no such metric")


def wait_for_held(server, condition, what="rows", seconds=120):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = read_held(server, what)
        if condition(value):
            return value
        time.sleep(0.02)
    raise AssertionError(f"{value} {what} are held")


def binary(rows, **parameters):
    """Body and headers of an infer request."""
    context = {"name": "context", "shape": list(rows.shape), "datatype": "FP32"}
    context["parameters"] = {"binary_data_size": rows.nbytes}
    content = {"inputs": [context], "parameters": {"k": 1, "binary_data_output": True} | parameters}
    text = json.dumps(content).encode()
    return text + rows.tobytes(), {LENGTH: str(len(text))}


def infer(server, rows, http=None, **parameters):
    body, headers = binary(ROWS[:rows], **parameters)
    return (http or server.http).post(INFER, content=body, headers=headers, timeout=300)


def topk(server, rows=1, **fields):
    content = {"model": "slow", "contexts": ROWS[:rows].tolist(), "k": 1} | fields
    return server.http.post("/v1/topk", json=content, timeout=300)


def check_overload(response):
    read_refusal(response, 429)
    assert 1 <= int(response.headers["retry-after"]) <= 60
    return response


def open_client(server, address):
    """A client that asks from this address, which makes it another one to the server."""
    return httpx.Client(base_url=server.url, transport=httpx.HTTPTransport(local_address=address))


@contextmanager
def busy(server, rows=MANY, **parameters):
    """While the server holds this many rows of another client, which it then answers."""
    with ThreadPoolExecutor(1) as pool, open_client(server, "127.0.0.2") as http:
        running = pool.submit(infer, server, rows, http, **parameters)
        wait_for_held(server, lambda value: value >= rows)
        yield running
        assert running.result().status_code == 200


def connect(server, address=""):
    """A connection from this address, by default from any."""
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60, source_address=(address, 0))


def head_of(path=INFER, **headers):
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        *(f"{name.replace('_', '-')}: {v}" for name, v in headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def answer_on(connection):
    """Status, headers and body that come on a raw connection."""
    response = http.client.HTTPResponse(connection)
    try:
        response.begin()
        return response.status, dict(response.getheaders()), response.read()
    finally:
        response.close()


def statistics(server):
    return server.http.get("/v2/models/slow/stats").json()["model_stats"][0]


def executions(server):
    stats = statistics(server)
    return stats["execution_count"], stats["inference_count"]


def send_request(server, rows=MANY, address="", **parameters):
    """A connection from this address on which a whole request was sent."""
    body, headers = binary(ROWS[:rows], **parameters)
    connection = connect(server, address)
    connection.sendall(head_of(Content_Length=len(body), **{LENGTH.replace("-", "_"): headers[LENGTH]}) + body)
    return connection
