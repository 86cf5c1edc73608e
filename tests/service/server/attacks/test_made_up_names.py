"""Paths and heads that a client makes up do not fill caches, nor do they slow others down."""

from __future__ import annotations

import re

import pytest

from .wire import MIB, ROWS, connect, forget_peak, infer, read_memory, read_responses, request

pytestmark = pytest.mark.slow


def read_caches(server):
    """How many entries each cache of the server holds."""
    text = server.http.get("/metrics").text
    return {
        name: float(size) for name, size in re.findall(r'^shortlist_cache_entries{cache="(\w+)"} (.*)$', text, re.M)
    }


def ask(connection, content):
    connection.sendall(content)
    return next(read_responses(connection))[0]


@pytest.mark.parametrize("length", [10, 60_000])
def test_versions_that_no_model_has_are_not_remembered(server, length):
    """1,024 of them took all places for paths, and no new head was ever learned again."""
    before, memory = read_caches(server), forget_peak(server)
    with connect(server, "127.0.0.2") as connection:
        for number in range(1100):
            path = f"/v2/models/lm/versions/{'7' * length}{number}/infer"
            assert ask(connection, request(path, b"{}")) == 404
    assert read_caches(server)["paths"] == before["paths"]
    assert read_memory(server) - memory < 24 * MIB
    with connect(server) as connection:
        for head in ("X-New: 1", "X-New: 2"):
            assert ask(connection, infer(ROWS[:1], head, f"X-Length: {length}")) == 200
    assert read_caches(server)["heads"] == before["heads"] + 2


def test_made_up_heads_are_bounded(server):
    before = forget_peak(server)
    with connect(server, "127.0.0.2") as connection:
        for number in range(3000):
            assert ask(connection, infer(ROWS[:1], f"X-Made-Up: {'a' * 1500}{number}")) == 200
    assert read_caches(server)["heads"] <= 1024
    assert read_memory(server) - before < 24 * MIB


def test_heads_that_differ_by_tracing_take_one_place(server):
    before = read_caches(server)["heads"]
    with connect(server) as connection:
        for number in range(50):
            ids = f"traceparent: 00-{number:032x}-{number:016x}-01", f"X-Request-Id: {number}"
            assert ask(connection, infer(ROWS[:1], "X-Traced: yes", *ids)) == 200
    assert read_caches(server)["heads"] == before + 1


def test_made_up_json_is_bounded(server):
    before = forget_peak(server)
    with connect(server, "127.0.0.2") as connection:
        for number in range(1000):
            assert ask(connection, infer(ROWS[:1], made_up="a" * 500 + str(number))) == 200
    assert read_caches(server)["templates"] <= 256
    assert read_memory(server) - before < 24 * MIB


def test_paths_that_are_known_are_known_by_many_names(server):
    """Leading zeros are the same version: there are few enough ways to write it."""
    with connect(server) as connection:
        statuses = [
            ask(connection, request(f"/v2/models/lm/versions/{'0' * zeros}1/infer", b"{}")) for zeros in range(20)
        ]
    assert set(statuses) == {400, 404}
