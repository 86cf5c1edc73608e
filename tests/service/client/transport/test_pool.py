"""Idle connections: which is taken, and which are closed."""

from __future__ import annotations

import pytest
from shortlist.client.transport import pool as pool_module
from shortlist.client.transport.pool import MAX_IDLE_CONNECTIONS, MAX_IDLE_SECONDS, Pool


class Connection:
    """One that notes how it fares."""

    def __init__(self, *, is_open=True):
        self.idle_since, self.is_open, self.is_closed = 0.0, is_open, False

    def close(self):
        self.is_closed = True


def fill(count):
    pool = Pool()
    connections = [Connection() for _ in range(count)]
    for connection in connections:
        pool.put(connection)
    return pool, connections


def test_the_last_is_taken_first():
    pool, (first, second) = fill(2)
    assert [pool.take(), pool.take(), pool.take()] == [second, first, None]


def test_those_that_are_not_open_are_closed():
    pool, (first, second) = fill(2)
    second.is_open = False
    assert pool.take() is first
    assert second.is_closed


def test_a_request_that_must_not_come_twice_gets_none():
    pool, (only,) = fill(1)
    assert pool.take(is_safe=False) is None
    assert pool.take() is only


def test_old_ones_are_not_used_and_closed(monkeypatch):
    pool, (first, second) = fill(2)
    now = second.idle_since
    monkeypatch.setattr(pool_module.time, "monotonic", lambda: now + MAX_IDLE_SECONDS + 1)
    pool.put(third := Connection())
    assert (first.is_closed, second.is_closed) == (True, False)
    assert pool.take() is third
    assert pool.take() is None
    assert second.is_closed


def test_no_more_are_kept_than_may_be():
    _, connections = fill(MAX_IDLE_CONNECTIONS + 2)
    assert [connection.is_closed for connection in connections] == [True, True] + [False] * MAX_IDLE_CONNECTIONS


def test_a_closed_pool_closes_all():
    pool, (first,) = fill(1)
    pool.close()
    pool.put(second := Connection())
    assert first.is_closed
    assert second.is_closed
    with pytest.raises(RuntimeError, match="the client is closed: make a new one"):
        pool.take()


def test_a_forked_process_has_none(monkeypatch):
    pool, (only,) = fill(1)
    monkeypatch.setattr(pool_module.os, "getpid", lambda: -1)
    assert pool.take() is None
    assert only.is_closed
