"""Loads that were asked for by clients that have left are not done."""

from __future__ import annotations

import time

import pytest

from tests.support.layers import RunningServer

from .wire import check_neighbour, connect, request

pytestmark = pytest.mark.slow

LOADS = 60


def test_loads_of_clients_that_left_are_not_done(small_repository):
    with RunningServer(small_repository) as server:
        before = count_loads(server)
        for _ in range(LOADS):
            with connect(server) as connection:
                connection.sendall(request("/v2/repository/models/lm/load", b"{}"))
        time.sleep(0.3)  # until they are known to have left
        response = server.http.post("/v2/repository/models/lm/load", timeout=300)
        assert response.status_code == 200
        assert 1 <= count_loads(server) - before < LOADS // 2
        check_neighbour(server)


def count_loads(server):
    return sum("'lm' version 1 is ready" in line for line in server.log)
