"""A client that ends its side after it has asked is answered; one that has left is not computed for."""

from __future__ import annotations

import shutil
import socket
import subprocess

import pytest

from tests.service.server.attacks.conftest import TIMERS
from tests.service.server.attacks.wire import (
    HEALTH,
    connect,
    converse,
    infer,
    is_closed,
    many_rows,
    read_all,
    read_metric,
    request,
    statuses,
    topk,
    topk_body,
    wait_until,
)
from tests.support.layers import RunningServer

pytestmark = pytest.mark.slow

ANSWERED = {
    "a request": (topk(), [200]),
    "the second of a connection": (topk() * 2, [200, 200]),
    "many": (topk() * 100, [200] * 100),
    "of a route": (HEALTH, [200]),
    "a large one": (infer(many_rows(4000)), [200]),
    "one in 1.0": (topk().replace(b"1.1", b"1.0"), [200]),
    "one before half a head": (topk() + b"GET / HT", [200]),
    "one before half a body": (topk() + request("/v1/topk", length=100) + b"{", [200]),
    "one before garbage": (topk() + b"\x00\r\n\r\n", [200, 400]),
    "half a body": (request("/v1/topk", length=100) + b"{", []),
    "half a head": (b"GET / HT", []),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("pause", [0, 0.1])
@pytest.mark.parametrize("what", ANSWERED)
def test_what_was_asked_is_answered(server, what, pause):
    content, expected = ANSWERED[what]
    assert statuses(converse(server, content, pause=pause)) == expected


@pytest.mark.skipif(shutil.which("nc") is None, reason="nc is not installed")
def test_netcat(server):
    host, port = server.url.removeprefix("http://").split(":")
    process = subprocess.run(["nc", "-N", host, port], input=topk(), capture_output=True, check=True, timeout=60)
    assert statuses(process.stdout) == [200]


@pytest.fixture(scope="module")
def slow_server(small_repository):
    """A server that computes one row at a time."""
    flags = ("--batch-rows", "1", "--request-timeout", "300", "--inline-us", "0")
    with RunningServer(small_repository, *TIMERS, *flags) as running:
        yield running


def test_an_answer_that_takes_a_while(slow_server):
    content = converse(slow_server, infer(many_rows(3000), exact=True))
    assert statuses(content) == [200]
    interim, _, _ = content.partition(b"HTTP/1.1 200")
    assert interim.count(b"HTTP/1.1 100 Continue\r\n\r\n") * 25 == len(interim) > 0


def test_a_client_of_http_1_0_gets_no_interim_responses(slow_server):
    content = converse(slow_server, infer(many_rows(1000), exact=True).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert content.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("how", ["close", "half-close and close", "reset"])
def test_nothing_is_computed_for_a_client_that_has_left(slow_server, how):
    before = executions(slow_server)
    connection = connect(slow_server, "127.0.0.2")
    connection.sendall(infer(many_rows(4096), exact=True))
    wait_until(lambda: read_metric(slow_server, "shortlist_held_rows") > 3000)
    if how == "half-close and close":
        connection.shutdown(socket.SHUT_WR)
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()
    wait_until(lambda: read_metric(slow_server, "shortlist_held_rows") == 0)
    assert executions(slow_server) - before < 4096


def executions(server):
    """Rows that were computed."""
    return server.http.get("/v2/models/lm/stats").json()["model_stats"][0]["inference_count"]


def test_idle_connections_that_end_are_closed_at_once(server):
    with connect(server) as connection:
        connection.sendall(topk())
        connection.recv(10)
        connection.shutdown(socket.SHUT_WR)
        assert is_closed(connection, 1.5)  # long before an idle one


def test_two_requests_that_end_while_they_wait(slow_server):
    ask = infer(many_rows(600), exact=True)
    with connect(slow_server) as connection:
        connection.sendall(ask + ask + topk() + request("/v1/topk", topk_body(), length=1000))
        connection.shutdown(socket.SHUT_WR)
        assert statuses(read_all(connection)) == [200, 200, 200]
