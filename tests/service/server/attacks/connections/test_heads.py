"""Heads that are too large, unclear or of another protocol are refused; what follows a body is no header."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest

from tests.service.server.attacks.wire import (
    HEALTH,
    MIB,
    connect,
    converse,
    forget_peak,
    read_all,
    read_memory,
    request,
    statuses,
    topk,
    topk_body,
)

pytestmark = pytest.mark.slow

OVER = 70_000
LARGE_HEADS = {
    "one header": request("/v1/topk", topk_body(), "X-Long: " + "a" * OVER),
    "many headers": request("/v1/topk", topk_body(), *(f"X-{number}: a" for number in range(10_000))),
    "more headers than anybody needs": request("/v1/topk", topk_body(), *(f"X-{number}: a" for number in range(200))),
    "a long path": request("/" + "a" * OVER, topk_body()),
    "line feeds": b"\r\n" * OVER + topk(),
    "a trailer": request("/v1/topk", b"", "Transfer-Encoding: chunked") + b"0\r\nX: " + b"a" * OVER + b"\r\n\r\n",
}


@pytest.mark.parametrize("parts", [1, 5])
@pytest.mark.parametrize("what", LARGE_HEADS)
def test_large_heads_are_refused_whether_they_come_at_once_or_not(server, what, parts):
    content = LARGE_HEADS[what]
    size = -(-len(content) // parts)
    came = converse_until_closed(server, [content[start : start + size] for start in range(0, len(content), size)])
    assert statuses(came) in ([431], [400] if what == "a trailer" else [431]), came[:300]


def converse_until_closed(server, parts):
    """Send the parts as long as the server reads; all that it sends."""
    with connect(server) as connection:

        def send():
            for part in parts:
                try:
                    connection.sendall(part)
                except OSError:
                    return
                time.sleep(0.02)

        thread = threading.Thread(target=send)
        thread.start()
        content = read_all(connection)
        thread.join()
    return content


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\n", request("/v1/topk", b"", "Transfer-Encoding: chunked") + b"0\r\n"]
)
def test_tiny_headers_are_refused_before_their_head_ends(server, start):
    """Each takes many times its size in memory, of as many connections as there may be."""
    before = forget_peak(server)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(server)) for _ in range(50)]
        for connection in connections:
            connection.sendall(start + b"a:\r\n" * 15_000)
        for connection in connections:
            assert statuses(read_all(connection)) == [431]
    assert read_memory(server, "VmHWM") - before < 24 * MIB


def test_heads_under_the_limits_are_read(server):
    headers = [f"X-{number}: {'a' * 500}" for number in range(120)]
    assert statuses(converse(server, request("/v1/topk", topk_body(), *headers))) == [200]


UNCLEAR = {
    "no host": topk().replace(b"Host: localhost\r\n", b""),
    "two hosts": topk("Host: y"),
    "the same host twice": topk("Host: localhost"),
    "a host with a path": topk().replace(b"Host: localhost", b"Host: localhost/y"),
    "a host with a user": topk().replace(b"Host: localhost", b"Host: a@x"),
    "two hosts in one": topk().replace(b"Host: localhost", b"Host: localhost, y"),
    "a port that is none": topk().replace(b"Host: localhost", b"Host: localhost:http"),
    "version 2": topk().replace(b"HTTP/1.1", b"HTTP/2.0"),
    "version 0.9": topk().replace(b"HTTP/1.1", b"HTTP/0.9"),
    "no version": b"GET /healthz\r\n\r\n",
    "version 2 by prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two codings": topk("Transfer-Encoding: gzip, chunked").replace(b"Content-Length", b"X-Was"),
    "an unknown coding": topk("Transfer-Encoding: gzip").replace(b"Content-Length", b"X-Was"),
    "a coding twice": topk("Transfer-Encoding: chunked", "Transfer-Encoding: chunked").replace(b"Content-Length", b"X"),
    "a coding in 1.0": request("/v1/topk", b"", "Transfer-Encoding: chunked").replace(b"1.1", b"1.0") + b"0\r\n\r\n",
    "a length and a coding": topk("Transfer-Encoding: chunked"),
}


@pytest.mark.parametrize("what", UNCLEAR)
def test_unclear_heads_are_refused(server, what):
    came = converse(server, UNCLEAR[what] + HEALTH)
    assert statuses(came) == [400]
    assert b"connection: close" in came


CLEAR = {
    "no host in 1.0": topk().replace(b"Host: localhost\r\n", b"").replace(b"1.1", b"1.0"),
    "a host with a port": topk().replace(b"Host: localhost", b"Host: localhost:8000"),
    "an address of IPv6": topk().replace(b"Host: localhost", b"Host: [::1]:8000"),
    "a tab behind the length": topk().replace(b"\r\n\r\n", b"\t\r\n\r\n", 1),
    "a coding in capitals": request("/v1/topk", b"", "Transfer-Encoding: CHUNKED")
    + b"%x\r\n%b\r\n0\r\n\r\n" % (len(topk_body()), topk_body()),
}


@pytest.mark.parametrize("what", CLEAR)
def test_what_is_unusual_and_clear_is_served(server, what):
    assert statuses(converse(server, CLEAR[what])) == [200]


@pytest.mark.parametrize("trailer", [b"Content-Encoding: gzip", b"Host: y", b"Expect: 100-continue", b"Upgrade: h2c"])
@pytest.mark.parametrize("pause", [0, 0.05])
def test_trailers_are_no_headers_however_they_come(server, trailer, pause):
    body = topk_body()
    head = request("/v1/topk", b"", "Transfer-Encoding: chunked") + b"%x\r\n%b\r\n" % (len(body), body)
    tail = b"0\r\n" + trailer + b"\r\n\r\n" + topk()
    parts = (head, tail) if pause else (head + tail,)
    assert statuses(converse(server, *parts)) == [200, 200]


def test_a_length_in_a_trailer_is_refused(server):
    head = request("/v1/topk", b"", "Transfer-Encoding: chunked") + b"2\r\n{}\r\n"
    assert statuses(converse(server, head + b"0\r\nContent-Length: 5\r\n\r\n" + topk())) == [400]


def test_a_good_request_is_answered_before_the_garbage_behind_it_is_refused(server):
    for garbage in (
        b"\x00\x01 nonsense\r\n\r\n",
        topk().replace(b"Host: localhost\r\n", b""),
        b"GET / HTTP/1.1\r\nA: " + b"b" * OVER,
    ):
        came = converse_until_closed(server, [topk() * 2 + garbage])
        assert statuses(came)[:2] == [200, 200]
        assert statuses(came)[2:] in ([400], [431])
        assert came.count(b'"ids"') == 2


def test_garbage_in_a_body_refuses_its_request_and_leaves_those_before_it(server):
    garbage = request("/v1/topk", b"", "Transfer-Encoding: chunked") + b"zz\r\n"
    assert statuses(converse(server, garbage)) == [400]
    assert statuses(converse(server, topk() * 2 + garbage)) == [200, 200, 400]


def test_garbage_in_the_body_of_a_request_that_was_answered_early_is_not_answered(server):
    head = request("/v1/nothing", b"", "Transfer-Encoding: chunked")
    assert statuses(converse(server, head, b"zz\r\n", pause=0.2)) == [404]


def test_endless_trailers_and_chunks_hold_little(server):
    before = forget_peak(server)
    head = request("/v1/topk", b"", "Transfer-Encoding: chunked")
    for filling in (b"1\r\na\r\n" * 100_000, b"0\r\n" + b"A: b\r\n" * 100_000, b"1;" + b"a" * 600_000):
        with connect(server) as connection:
            threading.Thread(target=send_quietly, args=(connection, head + filling * 5), daemon=True).start()
            read_all(connection)
    assert read_memory(server, "VmHWM") - before < 24 * MIB


def send_quietly(connection, content):
    try:
        connection.sendall(content)
    except OSError:
        return


def test_refusals_do_not_flood_the_log(server):
    before = len(server.log)
    for number in range(200):
        converse(server, b"nonsense %d\r\n\r\n" % number, pause=0)
    lines = server.log[before:]
    assert len(lines) <= 3, lines
    assert all("127.0.0.1" in line for line in lines)


def test_the_sentence_says_what_to_mend(server):
    came = converse(server, UNCLEAR["no host"])
    sentence = json.loads(came.partition(b"\r\n\r\n")[2])["error"]
    assert sentence == "the request is not HTTP/1.1: send one Host header"
