"""What is no question at all, and what clients do that never read."""

from __future__ import annotations

import random
import socket
import time
from contextlib import suppress

import httpx
import pytest

from tests.support.servers.responses import read_refusal

from .requests import CLASSES, INFER, ROWS, binary, connect, head_of, infer, read_held

pytestmark = pytest.mark.slow

VALID = head_of("/v1/topk", Content_Length=2) + b"{}"


def garbage():
    """Bytes that are no HTTP, or nearly."""
    source = random.Random(1)
    yield from (source.randbytes(source.randrange(1, 500)) for _ in range(20))
    for _ in range(30):
        content = bytearray(VALID)
        for _ in range(source.randrange(1, 6)):
            content[source.randrange(len(content))] = source.randrange(256)
        yield bytes(content)
    yield from (VALID[:i] for i in range(0, len(VALID), 7))
    yield head_of(Content_Length="-5")
    yield head_of(Content_Length="1, 2")
    yield head_of(Content_Length=5, Transfer_Encoding="chunked") + b"zz\r\n"
    yield head_of(Transfer_Encoding="chunked") + b"fffffffffffffffff\r\n"
    yield b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n"
    yield b"GET / HTTP/1.1\r\n" + b"A: " + b"b" * 200_000 + b"\r\n\r\n"
    yield b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200)


def test_garbage_and_half_closed_connections_hurt_nobody(server):
    for content in garbage():
        with connect(server) as connection:
            try:
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
            except OSError:
                continue
            status = answer.split(b" ")[1:2]
            assert not status or not status[0].startswith(b"5") or status[0] in (b"501", b"503"), (content, answer)
    assert infer(server, 1).status_code == 200
    assert (read_held(server), read_held(server, "bytes")) == (0, 0)
    assert not any("Traceback" in line for line in server.log)


METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")


def test_every_failure_is_one_sentence_on_every_route(server):
    paths = server.http.get("/openapi.json").json()["paths"]
    assert INFER.replace("slow", "{name}") in paths
    for path, operations in paths.items():
        url = path.replace("{name}", "nope").replace("{version}", "9").replace("{region}", "nope")
        for method in METHODS:
            response = server.http.request(method, url, content=b"[" if method == "POST" else None)
            has_route = method.lower() in operations
            assert (response.status_code == 405) == (not has_route), (method, url)
            if response.status_code != 200:
                read_refusal(response, response.status_code)
                assert response.status_code < 500, (method, url, response.text)
        read_refusal(server.http.get(url + "/x/y/z"), 404)
    assert server.http.post("/").status_code == 405
    for path in (
        "/overview",
        "/overview/x",
        "/v1",
        "/v3",
        "/%00",
        "/v2/models/%FF/infer",
        "/v1/topk?x=%FF",
        "//v1/topk",
    ):
        response = server.http.get(path)
        read_refusal(response, response.status_code)
        assert response.status_code in (404, 405)


def test_names_in_sentences_stay_on_one_line(server):
    read_refusal(server.http.get("/v2/models/a%0Ab"), 404)
    read_refusal(server.http.post("/v2/models/a%0Ab/infer", content=b"{}"), 404)


def test_a_client_that_never_reads_is_cut_off(server):
    body, headers = binary(ROWS[:13], k=CLASSES, binary_data_output=False)
    head = [
        f"POST {INFER} HTTP/1.1",
        "Host: localhost",
        f"Content-Length: {len(body)}",
        *map(": ".join, headers.items()),
    ]
    address = httpx.URL(server.url)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect((address.host, address.port))
        client.sendall("\r\n".join([*head, "", ""]).encode() + body)
        time.sleep(4)  # twice the server's patience
        client.settimeout(10)
        assert count_bytes(client) < 20_000_000  # of 25
    assert infer(server, 1).status_code == 200


def count_bytes(client):
    """Bytes until the other side closes, or resets."""
    total = 0
    with suppress(ConnectionResetError):
        while part := client.recv(1 << 16):
            total += len(part)
    return total
