"""Answers that nobody reads count as held until they are read, so that no more of them are made than may be held."""

from __future__ import annotations

import contextlib

import pytest

from tests.service.server.attacks.conftest import TIMERS
from tests.service.server.attacks.wire import (
    MIB,
    check_neighbour,
    connect,
    forget_peak,
    infer,
    is_closed,
    many_rows,
    read_memory,
    read_metric,
    read_response,
    request,
    wait_until,
)
from tests.support.layers import CLASSES, RunningServer

pytestmark = pytest.mark.slow

QUEUE_BYTES = 16 * MIB
ROWS = 1000
ANSWER_BYTES = ROWS * CLASSES * 12
LARGE_ANSWER = infer(many_rows(ROWS), k=CLASSES)


@pytest.fixture(scope="module")
def server(small_repository):
    with RunningServer(small_repository, *TIMERS, "--queue-bytes", str(QUEUE_BYTES), "--body-timeout", "4") as running:
        running.http.post("/v1/topk", json={"model": "lm", "contexts": many_rows(ROWS).tolist(), "k": CLASSES})
        yield running


def ask_without_reading(server, stack, content, clients):
    """Connections on which a request was sent and whose answers nobody reads."""
    connections = []
    for number in range(clients):
        address = f"127.0.0.{2 + number % 3}"
        connections.append(stack.enter_context(connect(server, address, receive_bytes=4096)))
        connections[-1].sendall(content)
    return connections


def test_unread_answers_are_held_and_no_more_are_made(server):
    before = forget_peak(server)
    with contextlib.ExitStack() as stack:
        connections = ask_without_reading(server, stack, LARGE_ANSWER, 24)
        wait_until(lambda: read_metric(server, "shortlist_held_bytes") > ANSWER_BYTES - MIB)
        wait_until(lambda: read_metric(server, "shortlist_held_rows") == 0)
        held = read_metric(server, "shortlist_held_bytes")
        assert ANSWER_BYTES - MIB < held < QUEUE_BYTES
        assert 'code="429"' in server.http.get("/metrics").text
        assert read_memory(server, "VmHWM") - before < 3 * QUEUE_BYTES
        with connect(server, "127.0.0.7") as other:
            other.sendall(infer(many_rows(1)))
            assert read_response(other)[0] == 200
        assert all(is_closed(connection, 20) for connection in connections if connection.recv(12) == b"HTTP/1.1 200")
    check_neighbour(server)


def test_answers_of_any_route_are_held(server):
    """Pipelined, since one of these fits the system's buffers."""
    with contextlib.ExitStack() as stack:
        ask_without_reading(server, stack, request("/metrics", method="GET") * 100, 8)
        wait_until(lambda: read_metric(server, "shortlist_held_bytes") > 1000)
    check_neighbour(server)


def test_an_answer_that_is_read_late_is_whole(server):
    with connect(server, receive_bytes=4096) as connection:
        connection.sendall(LARGE_ANSWER)
        wait_until(lambda: read_metric(server, "shortlist_held_bytes") > ANSWER_BYTES - MIB)
        status, body = read_response(connection)
    assert status == 200
    assert len(body) > ANSWER_BYTES
