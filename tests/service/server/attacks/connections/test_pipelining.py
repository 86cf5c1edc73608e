"""Requests sent without waiting for answers: memory is bounded, answers come in order, others are served."""

from __future__ import annotations

import json
import re
import threading

import numpy as np
import pytest

from tests.service.server.attacks.conftest import TIMERS
from tests.service.server.attacks.wire import (
    HEALTH,
    MIB,
    ROWS,
    check_neighbour,
    connect,
    forget_peak,
    infer,
    read_memory,
    read_response,
    read_responses,
    topk,
)
from tests.support.layers import RunningServer

pytestmark = pytest.mark.slow

MAX_GROWTH_BYTES = 24 * MIB


def flood(connection, content, times):
    """Send `content` so many times, from a thread, since the server reads as it answers."""

    def send():
        for _ in range(times):
            connection.sendall(content)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    return thread


def count_answers(connection, wanted):
    """Read until so many answers came."""
    mark, count, tail = b'{"live":true', 0, b""
    while count < wanted:
        part = connection.recv(1 << 20)
        assert part, f"{count} answers of {wanted}"
        tail += part
        count += tail.count(mark)
        tail = tail[tail.rfind(mark) + len(mark) :] if mark in tail else tail[-len(mark) :]
    return count


def check_flood(server, requests):
    before = forget_peak(server)
    with connect(server, "127.0.0.2") as connection:
        thread = flood(connection, HEALTH * 1000, requests // 1000)
        check_neighbour_while_flooded(server)
        assert count_answers(connection, requests) == requests
        thread.join()
    assert read_memory(server, "VmHWM") - before < MAX_GROWTH_BYTES


def check_neighbour_while_flooded(server):
    for _ in range(20):
        with connect(server) as connection:
            connection.sendall(topk())
            assert read_response(connection)[0] == 200


def test_a_flood_is_answered_as_it_is_read(server):
    check_flood(server, 20_000)


@pytest.mark.long
def test_a_long_flood(small_repository):
    with RunningServer(small_repository, *TIMERS) as server:
        check_flood(server, 450_000)
        check_neighbour(server)


def test_a_flood_that_reads_no_answers_is_cut_off(server):
    before = forget_peak(server)
    with (
        connect(server, "127.0.0.2", receive_bytes=4096) as connection,
        pytest.raises((BrokenPipeError, ConnectionResetError)),
    ):
        connection.sendall(HEALTH * 1_000_000)
    assert read_memory(server, "VmHWM") - before < MAX_GROWTH_BYTES


def test_answers_come_in_order_however_requests_are_cut(server):
    random = np.random.default_rng(1)
    ks = random.integers(1, 9, 400)
    content = b"".join(infer(ROWS[:1], k=int(k)) if k % 3 else topk(k=int(k)) for k in ks)
    marks = np.sort(random.integers(0, len(content), 60))
    with connect(server) as connection:
        threading.Thread(
            target=lambda: [connection.sendall(part) for part in np.split(np.frombuffer(content, np.uint8), marks)],
            daemon=True,
        ).start()
        for k, (status, body) in zip(ks, read_responses(connection), strict=False):
            assert status == 200
            assert count_classes(body) == k


def count_classes(body):
    """k of a response, of either interface."""
    match = re.search(rb'"shape":\[1,(\d)\]', body)
    return int(match[1]) if match else len(json.loads(body)["ids"][0])


def test_a_body_that_waits_behind_others_arrives_whole(server):
    """More of it than one read, behind requests that are not answered yet."""
    large = infer(np.resize(ROWS, (2000, ROWS.shape[1])))
    with connect(server) as connection:
        connection.sendall(topk() * 3 + large + topk(k=7))
        responses = [next(one) for one in [read_responses(connection)] * 5]
        assert [status for status, _ in responses] == [200] * 5
        assert b'"shape":[2000,3]' in responses[3][1]
        assert count_classes(responses[4][1]) == 7
