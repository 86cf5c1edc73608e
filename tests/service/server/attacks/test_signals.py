"""Signals that other servers bear, and a stop while clients are slow."""

from __future__ import annotations

import contextlib
import shlex
import signal
import subprocess
import sys
import time

import httpx
import pytest

from tests.support.layers import CLASSES, RunningServer

from .wire import (
    ROWS,
    check_neighbour,
    connect,
    infer,
    many_rows,
    read_all,
    read_response,
    request,
    statuses,
    topk_body,
    wait_until,
)

pytestmark = pytest.mark.slow

DRAIN_SECONDS = 25  # under the half minute that Kubernetes gives
SLOW = {
    "half a body": request("/v1/topk", topk_body(), length=5000),
    "half a body of a route": request("/v2/repository/index", b"{", length=50),
    "half a chunk": request("/v1/topk", b"", "Transfer-Encoding: chunked") + b"5\r\nab",
    "half a head": b"POST /v1/topk HT",
    "a discarded body": request("/v1/nothing", b"{", length=5000),
    "an answer that nobody reads": infer(many_rows(4000), k=CLASSES),
    "nothing": b"",
}


@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1"])
def test_signals_that_mean_something_else_end_nothing(small_repository, name):
    with RunningServer(small_repository) as server, connect(server) as connection:
        connection.sendall(request("/v1/topk", length=len(topk_body())))
        server.process.send_signal(getattr(signal, name))
        time.sleep(0.3)
        connection.sendall(topk_body())
        assert read_response(connection)[0] == 200
        check_neighbour(server)


@pytest.mark.parametrize("flags", [(), ("--unix-socket", "s.sock", "--no-tcp")])
@pytest.mark.parametrize("name", ["SIGHUP", "SIGUSR1"])
def test_signals_that_come_as_soon_as_a_server_says_where_it_listens_end_nothing(
    small_repository, tmp_path, monkeypatch, name, flags
):
    """They did for a moment, in which SIGTERM also left the Unix socket behind, and gave no exit code of 0."""
    monkeypatch.chdir(tmp_path)
    with RunningServer(small_repository, *flags, wait=False) as server:
        server.process.send_signal(getattr(signal, name))
        server.process.terminate()
        assert server.process.wait(timeout=DRAIN_SECONDS) == 0, server.log
    assert list(tmp_path.iterdir()) == []


def test_a_server_without_standard_streams_ends_as_others_do(small_repository, tmp_path):
    """Its event loop got the number of a closed stream, and at the end libuv aborted."""
    path = tmp_path / "s.sock"
    words = [sys.executable, "-m", "shortlist", "serve", small_repository, "--unix-socket", path, "--no-tcp"]
    process = subprocess.Popen(["sh", "-c", f"exec {shlex.join(map(str, words))} >&- 2>&-"])
    try:
        wait_until(path.exists)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
            assert client.get("http://localhost/healthz", timeout=60).status_code == 200, (
                "it handles signals from then on"
            )
        process.terminate()
        assert process.wait(timeout=DRAIN_SECONDS) == 0
    finally:
        process.kill()


def test_it_stops_in_time_whatever_its_clients_do(small_repository):
    """With all defaults, and every kind of slow client at once."""
    with RunningServer(small_repository) as server, contextlib.ExitStack() as stack:
        connections = {}
        for name, content in SLOW.items():
            connections[name] = stack.enter_context(connect(server, receive_bytes=4096))
            connections[name].sendall(content)
        time.sleep(0.5)
        server.process.terminate()
        assert server.process.wait(timeout=DRAIN_SECONDS) == 0
        assert statuses(read_all(connections["half a body"])) == [408]
        assert statuses(read_all(connections["half a body of a route"])) == [408]
    assert not any("Traceback" in line for line in server.log), server.log


def test_a_body_that_still_comes_while_the_server_stops_is_answered(small_repository):
    body = infer(ROWS[:1])
    with RunningServer(small_repository, "--drain-delay", "0.5") as server, connect(server) as connection:
        connection.sendall(body[:-10])
        server.process.terminate()
        time.sleep(1.5)
        connection.sendall(body[-10:])
        content = read_all(connection)
        assert statuses(content) == [200]
        assert b"connection: close" in content
        assert server.process.wait(timeout=DRAIN_SECONDS) == 0
