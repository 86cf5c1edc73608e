"""A real server with its timers turned down, which every attack must leave as it was."""

from __future__ import annotations

import pytest

from tests.support.layers import RunningServer

from .wire import check_neighbour

TIMERS = ("--threads", "1", "--body-timeout", "1", "--keep-alive", "2")


@pytest.fixture(scope="module")
def server(small_repository):
    with RunningServer(small_repository, *TIMERS) as running:
        yield running


@pytest.fixture(autouse=True)
def neighbours_are_served(request):
    """After an attack on the shared server, others are answered and nothing is held."""
    yield
    if "server" in request.fixturenames:
        check_neighbour(request.getfixturevalue("server"))
