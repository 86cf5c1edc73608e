"""A real server with more to do than it can: who is refused, when, and that nobody else suffers."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import pytest

from tests.support.layers import RunningServer
from tests.support.servers.responses import read_refusal

from .requests import (
    INFER,
    LENGTH,
    MANY,
    MICROSECONDS,
    PATIENT,
    ROWS,
    answer_on,
    binary,
    busy,
    check_overload,
    connect,
    executions,
    head_of,
    infer,
    open_client,
    send_request,
    statistics,
    topk,
    wait_for_held,
)

pytestmark = pytest.mark.slow


def test_one_rule_for_one_row_and_many_while_rows_are_held(server):
    with busy(server):
        assert infer(server, 1).status_code == 200
        assert infer(server, 7).status_code == 200
        check_overload(infer(server, 8))  # a client may hold three times what it leaves free
        check_overload(infer(server, 11))
        check_overload(topk(server, 11))
        check_overload(infer(server, 1000))
        assert topk(server).status_code == 200
    assert infer(server, 1000).status_code == 200


def test_a_full_queue_refuses_before_the_body_and_takes_again_afterwards(repository):
    with RunningServer(repository, "--queue-rows", "100", *PATIENT) as server:
        with busy(server) as running:
            check_overload(infer(server, 1))
            check_overload(topk(server, 50))
            check_overload(server.http.post("/v1/topk", content=b"{"))  # it is not even read
            with connect(server) as connection:
                connection.sendall(head_of(Content_Length=100))
                status, headers, body = answer_on(connection)
            assert (status, set(json.loads(body))) == (429, {"error"})
            assert int({name.lower(): value for name, value in headers.items()}["retry-after"]) >= 1
            assert server.http.get("/readyz").status_code == 200
            assert not running.done()
        assert infer(server, 1).status_code == 200
        assert topk(server, 90).status_code == 200
        metrics = server.http.get("/metrics").text
        assert 'code="429"' in metrics


def test_bytes_that_are_held_are_bounded_too(repository):
    with RunningServer(repository, "--queue-bytes", "500000", *PATIENT) as server:
        with busy(server):  # one alone is taken, whatever its size
            check_overload(infer(server, 1))
        assert infer(server, 1).status_code == 200


def test_a_wait_over_much_of_the_time_is_refused_at_once(server):
    assert infer(server, 200).status_code == 200  # so that a row's time is known
    with busy(server):
        check_overload(infer(server, 1, timeout=MICROSECONDS // 100))
        check_overload(topk(server, timeout=0.01))
        assert topk(server, timeout=250).status_code == 200


WITHIN = {
    "v1": lambda server, seconds: topk(server, MANY, timeout=seconds),
    "v2": lambda server, seconds: infer(server, MANY, timeout=int(seconds * MICROSECONDS)),
}


def compute_seconds(server):
    """What the server needs for all rows, once it has read them."""

    def read_compute_seconds():
        return statistics(server)["inference_stats"]["compute_infer"]["ns"] / 1e9

    before = read_compute_seconds()
    assert infer(server, MANY).status_code == 200
    return read_compute_seconds() - before


@pytest.mark.parametrize("way", WITHIN)
def test_a_timeout_that_is_over_is_504_and_the_rest_is_not_computed(server, way):
    seconds = min(compute_seconds(server) for _ in range(2))  # less than this and its body takes, on any machine
    before = executions(server)[1]
    assert "time was over" in read_refusal(WITHIN[way](server, seconds / 3), 504)
    wait_for_held(server, lambda rows: rows == 0)
    assert infer(server, 1).status_code == 200
    assert executions(server)[1] - before < MANY
    assert 'code="504"' in server.http.get("/metrics").text


def test_a_request_whose_time_is_over_when_it_comes_is_not_computed_at_all(server):
    assert infer(server, 1).status_code == 200
    before = executions(server)
    read_refusal(infer(server, 50, timeout=1), 504)
    read_refusal(topk(server, 50, timeout=1e-6), 504)
    assert infer(server, 1).status_code == 200
    assert executions(server) == (before[0] + 1, before[1] + 1)


def test_a_time_that_is_over_is_504_however_busy_the_server_is(server):
    with busy(server):
        read_refusal(infer(server, 1, timeout=1), 504)


def test_the_servers_own_timeout(repository):
    with RunningServer(repository, "--request-timeout", "0.02") as server:
        read_refusal(infer(server, 4000), 504)
        assert infer(server, 1, timeout=60 * MICROSECONDS).status_code == 200


def test_empty_requests_beside_a_long_batch_harm_nobody(repository):
    empty = {"model": "slow", "contexts": [], "k": 1}
    with RunningServer(repository, "--batch-rows", "1024", *PATIENT) as server, busy(server, 4000) as running:
        statuses = set()
        while not running.done():
            statuses.add(server.http.post("/v1/topk", json=empty).status_code)
            time.sleep(0.02)
        assert statuses == {200}


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_vanishes_frees_its_rows_and_is_not_computed_further(server, how):
    before = executions(server)[1]
    connection = send_request(server)
    wait_for_held(server, lambda rows: rows >= MANY)
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()
    wait_for_held(server, lambda rows: rows == 0)
    assert executions(server)[1] - before < MANY
    assert infer(server, 1).status_code == 200


def test_clients_that_vanish_while_they_wait_free_their_place(server):
    before = executions(server)[1]
    with busy(server):
        connections = [send_request(server, rows, f"127.0.0.{rows}", priority=9) for rows in (4, 3)]
        wait_for_held(server, lambda rows: rows == MANY + 7)
        for connection in connections:
            connection.close()
        wait_for_held(server, lambda rows: rows <= MANY)
        assert infer(server, 7).status_code == 200
    assert executions(server)[1] - before == MANY + 7


def test_lower_priority_values_go_first(server):
    order, lock = [], threading.Lock()

    def ask(priority, rows):
        with open_client(server, f"127.0.0.{2 + priority}") as http:
            body, headers = binary(ROWS[:rows], priority=priority)
            assert http.post(INFER, content=body, headers=headers, timeout=300).status_code == 200
        with lock:
            order.append(priority)

    with ThreadPoolExecutor(3) as pool:
        running = []
        for total, (priority, rows) in zip((2000, 2400, 2800), ((5, 2000), (9, 400), (0, 400)), strict=True):
            running.append(pool.submit(ask, priority, rows))
            wait_for_held(server, lambda value, total=total: value >= total)
        for each in running:
            each.result()
    assert order == [0, 5, 9]


def test_a_single_row_does_not_wait_for_the_whole_of_a_large_request(server):
    with busy(server) as running:
        assert infer(server, 1).status_code == 200
        assert not running.done()


def test_every_answer_under_load_is_its_own(server):
    rows = [ROWS[i : i + 7] for i in range(0, 280, 7)]
    whole = infer(server, 280, k=3)
    expected = ids_of(whole).reshape(40, 7, 3)

    def ask(i):
        body, headers = binary(rows[i], k=3)
        return ids_of(http.post(INFER, content=body, headers=headers, timeout=300)).reshape(7, 3)

    with httpx.Client(base_url=server.url) as http, ThreadPoolExecutor(16) as pool:
        result = list(pool.map(ask, range(40)))
    np.testing.assert_array_equal(result, expected)


def ids_of(response):
    assert response.status_code == 200, response.text
    start = int(response.headers[LENGTH])
    entry = json.loads(response.content[:start])["outputs"][0]
    return np.frombuffer(response.content[start:], np.int64, int(np.prod(entry["shape"])))
