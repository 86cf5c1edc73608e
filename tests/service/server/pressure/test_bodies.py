"""Bodies that are too large, do not come, or come in pieces."""

from __future__ import annotations

import gzip
import json
import time

import pytest

from tests.support.layers import RunningServer
from tests.support.servers.responses import read_refusal

from .requests import (
    INFER,
    LENGTH,
    ROWS,
    answer_on,
    binary,
    connect,
    head_of,
    infer,
    read_held,
    wait_for_held,
)

pytestmark = pytest.mark.slow


def test_a_length_over_the_limit_is_413_before_the_body_is_sent(server):
    for expect in ({}, {"Expect": "100-continue"}):
        with connect(server) as connection:
            connection.sendall(head_of(Content_Length=4_000_001, **expect))
            status, _, body = answer_on(connection)
        assert status == 413
        assert "4000000" in json.loads(body)["error"]


def test_a_body_that_is_waited_for_is_asked_for(server):
    body, headers = binary(ROWS[:1])
    names = {LENGTH.replace("-", "_"): headers[LENGTH]}
    with connect(server) as connection:
        connection.sendall(head_of(Content_Length=len(body), Expect="100-continue", **names))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert answer_on(connection)[0] == 200


def test_chunks_over_the_limit_are_413(server):
    for path in (INFER, "/v1/topk", "/v2/repository/index"):
        with connect(server) as connection:
            connection.sendall(head_of(path, Transfer_Encoding="chunked"))
            for _ in range(5):
                connection.sendall(b"f4240\r\n" + b" " * 1_000_000 + b"\r\n")
            status, _, body = answer_on(connection)
        assert (status, set(json.loads(body))) == (413, {"error"})


@pytest.mark.parametrize("bomb", ["gzip", "deflate"])
def test_a_bomb_is_413(server, bomb):
    body = gzip.compress(bytes(64 << 20))
    if bomb == "deflate":
        read_refusal(server.http.post(INFER, content=body, headers={"Content-Encoding": bomb}), 400)
        return
    read_refusal(server.http.post(INFER, content=body, headers={"Content-Encoding": bomb}), 413)
    assert infer(server, 1).status_code == 200


@pytest.mark.parametrize("path", [INFER, "/v1/topk", "/v1/score"])
def test_a_body_that_does_not_come_is_408(server, path):
    with connect(server) as connection:
        connection.sendall(head_of(path, Content_Length=1000) + b"{")
        assert infer(server, 1).status_code == 200
        status, _, body = answer_on(connection)
    assert status == 408
    assert "did not come within 2 s" in json.loads(body)["error"]
    assert read_held(server, "bytes") == 0


def test_a_body_of_an_operators_question_that_does_not_come_is_408(server):
    with connect(server) as connection:
        connection.settimeout(20)
        connection.sendall(head_of("/v2/repository/index", Content_Length=1000) + b"{")
        assert answer_on(connection)[0] == 408


def test_a_body_that_drips_is_408_and_the_connection_is_good_again(server):
    body, headers = binary(ROWS[:1])
    with connect(server) as connection:
        connection.sendall(head_of("/v1/topk", Content_Length=30))
        for _ in range(10):
            connection.sendall(b" ")
            time.sleep(0.4)
        assert answer_on(connection)[0] == 408
        connection.sendall(b" " * 20)
        names = {LENGTH.replace("-", "_"): headers[LENGTH]}
        connection.sendall(head_of(Content_Length=len(body), **names) + body)
        assert answer_on(connection)[0] == 200


def test_bodies_that_are_cut_off_hold_nothing(server):
    for length in (1000, 1_000_000):
        with connect(server) as connection:
            connection.sendall(head_of(Content_Length=length) + b"x" * 500)
            wait_for_held(server, lambda value: value > 0, "bytes")
    wait_for_held(server, lambda value: value == 0, "bytes")


def test_a_lone_body_of_unknown_length_is_taken_as_one_of_known_length(repository):
    with RunningServer(repository, "--queue-bytes", "1000") as server:
        body, headers = binary(ROWS[:100])
        assert server.http.post(INFER, content=body, headers=headers).status_code == 200
        with connect(server) as connection:
            names = {LENGTH.replace("-", "_"): headers[LENGTH]}
            connection.sendall(head_of(Transfer_Encoding="chunked", **names))
            for start in range(0, len(body), 9000):
                chunk = body[start : start + 9000]
                connection.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
                expected = {0, start + len(chunk)}  # 0: it is answered
                wait_for_held(server, expected.__contains__, "bytes")
            connection.sendall(b"0\r\n\r\n")
            assert answer_on(connection)[0] == 200


def test_connections_that_announce_much_and_send_nothing_do_not_shut_others_out(repository):
    with RunningServer(repository) as server:
        connections = [connect(server) for _ in range(12)]
        try:
            for connection in connections:
                connection.sendall(head_of(Content_Length=16 << 20) + b"{")
            time.sleep(0.5)
            assert infer(server, 1).status_code == 200
        finally:
            for connection in connections:
                connection.close()
