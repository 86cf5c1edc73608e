"""No connection lives for ever, and nobody can have all of them."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.service.server.attacks.conftest import TIMERS
from tests.service.server.attacks.wire import (
    HEALTH,
    INFER,
    METRICS,
    check_neighbour,
    connect,
    is_closed,
    read_response,
    request,
    topk,
    wait_until,
)
from tests.support.layers import RunningServer

pytestmark = pytest.mark.slow

SECONDS = 12  # the timers together, on a busy machine
HALF_BODY = b"{" * 10


def half(path, *headers, method="POST", length=1000):
    """A request of whose body some bytes have come."""
    return request(path, b"", *headers, method=method, length=length) + HALF_BODY


# Each is answered before its body is complete; one more byte follows.
EARLY_ANSWERS = {
    "over the limit": half(INFER, length=1 << 30),
    "an unknown route": half("/v1/nothing"),
    "a wrong verb": half("/v1/topk", method="PUT"),
    "a body that nobody reads": half("/healthz", method="GET"),
    "an unknown route, in chunks": request("/v1/nothing", b"", "Transfer-Encoding: chunked") + b"5\r\nab",
    "a wrong length": half("/v1/topk", "Expect: 100-continue", length=1 << 30),
    "a body that does not come": half("/v1/topk"),
}


@pytest.mark.parametrize("times", [1, 1000])
@pytest.mark.parametrize("what", EARLY_ANSWERS)
def test_bytes_after_an_early_answer_keep_no_connection(server, what, times):
    """One more byte, or one now and then for as long as the server takes them."""
    with connect(server) as connection:
        connection.sendall(EARLY_ANSWERS[what])
        assert read_response(connection)[0] >= 200
        end = time.monotonic() + SECONDS
        with contextlib.suppress(ConnectionError):
            for _ in range(times):
                connection.sendall(b"x")
                if is_closed(connection, 0.2) or time.monotonic() > end:
                    break
        assert is_closed(connection, SECONDS if times == 1 else 0.2)


NOT_REQUESTS = {
    "nothing": b"",
    "a line feed": b"\r\n",
    "half a head": b"GET / HTT",
    "half a head after an answer": HEALTH + b"GET / HTT",
    "a line feed after an answer": HEALTH + b"\r\n",
    "an answer": HEALTH,
    "a half body": half("/v1/topk"),
    "a half chunk": request("/v1/topk", b"", "Transfer-Encoding: chunked") + b"5\r\nab",
    "a half body behind others": topk() * 3 + half("/v1/topk"),
    "a half head behind others": topk() * 3 + b"GET / HTT",
}


@pytest.mark.parametrize("what", NOT_REQUESTS)
def test_silence_ends(server, what):
    with connect(server) as connection:
        connection.sendall(NOT_REQUESTS[what])
        assert is_closed(connection, SECONDS)


def test_a_discarded_body_that_ends_in_time_leaves_a_good_connection(server):
    with connect(server) as connection:
        connection.sendall(half("/v1/nothing", length=20))
        assert read_response(connection)[0] == 404
        connection.sendall(b"{" * 10)
        connection.sendall(topk())
        assert read_response(connection)[0] == 200
        assert is_closed(connection, SECONDS)


@pytest.fixture
def few(small_repository):
    """A server with eight connections."""
    with RunningServer(small_repository, *TIMERS, "--max-connections", "8", "--keep-alive", "60") as running:
        running.http.close()
        yield running


def test_one_address_cannot_have_all_connections(few):
    with contextlib.ExitStack() as stack:
        mine = [stack.enter_context(connect(few, "127.0.0.2")) for _ in range(8)]
        for connection in mine[:6]:
            connection.sendall(HEALTH)
            assert read_response(connection)[0] == 200
        for connection in mine[6:]:
            status, body = read_response(connection)
            assert status == 503
            assert b"6 connections are open, 6 of them yours" in body
            assert is_closed(connection, SECONDS)
        other = stack.enter_context(connect(few, "127.0.0.3"))
        other.sendall(topk())
        assert read_response(other)[0] == 200
        other.sendall(METRICS)
        assert b'shortlist_refusals_total{reason="connections"} 2.0' in read_response(other)[1]
        other.close()
        mine[0].close()
        wait_until(lambda: answers(few, "127.0.0.2"))
    lines = [line for line in few.log if "refused" in line]
    assert 1 <= len(lines) <= 2, lines


def answers(server, address):
    """Whether a new connection is answered."""
    with connect(server, address) as connection:
        connection.sendall(HEALTH)
        return read_response(connection)[0] == 200


def test_connections_stay_under_the_limit_of_open_files(small_repository):
    """Where the process may have 100 files open, as in a container with little."""
    code = "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)); "
    code += "runpy.run_module('shortlist', run_name='__main__', alter_sys=True)"
    command = [sys.executable, "-c", code, "serve", str(small_repository), "--port", "0", *TIMERS]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        first_lines = list(read_until(process.stderr, "listening on"))
        server = Address(first_lines[-1].split()[-1])
        wait_until(lambda: is_ready(server))
        with contextlib.ExitStack() as stack:
            for _ in range(120):
                stack.enter_context(connect(server, "127.0.0.2")).sendall(b"GET / HTT")
            assert answers(server, "127.0.0.3")
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert "36 connections at most" in "".join(first_lines)


def read_until(stream, words):
    """Lines of a stream until one holds the words."""
    for line in stream:
        yield line
        if words in line:
            return
    raise AssertionError(f"no line holds {words!r}")


class Address:
    """A server of which the address alone is known."""

    def __init__(self, url):
        self.url = url


def is_ready(server):
    with connect(server) as connection:
        connection.sendall(request("/readyz", method="GET"))
        return read_response(connection)[0] == 200


def test_the_limit_of_open_files_is_raised_for_connections(small_repository):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with RunningServer(small_repository, "--max-connections", "500") as server:
        limits = Path(f"/proc/{server.process.pid}/limits").read_text()
        soft = next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[3]
        assert soft == "unlimited" or int(soft) >= min(hard, 564)


@pytest.mark.long
def test_early_answers_by_the_hundred_do_not_shut_others_out(small_repository):
    """The attack of the review: with 128 files and 110 such connections, nobody else was answered for 85 s."""
    with RunningServer(small_repository, *TIMERS) as server, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(server, "127.0.0.2")) for _ in range(1000)]
        for connection in connections:
            connection.sendall(half(INFER, length=1 << 30))
            assert read_response(connection)[0] == 413
            connection.sendall(b"x")
        check_neighbour(server)
        time.sleep(SECONDS)
        assert all(is_closed(connection, 1) for connection in connections)
