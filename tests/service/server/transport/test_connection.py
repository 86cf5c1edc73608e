"""A connection's pipeline beside the work of others; what clients do to connections is in `attacks`."""

from __future__ import annotations

import asyncio
import socket
import struct
import time

import pytest
from shortlist.server.messages.headers import FORWARDED_FOR
from shortlist.server.transport.connection import REST_SECONDS

from tests.support.servers.fast_path import Client, statuses, topk

pytestmark = pytest.mark.slow

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
COUNT = 8
PAUSE_SECONDS = 0.5


@pytest.fixture
def busy(servers):
    """The servers while a row of another client waits to be computed."""
    for server in servers.both:
        server.service.admission.row_shares.add("another", 1)
    yield servers
    for server in servers.both:
        server.service.admission.row_shares.add("another", -1)


def test_requests_of_one_pipeline_leave_time_for_others_that_wait(busy):
    start = time.perf_counter()
    responses, _ = busy.talk(HEALTH * COUNT)
    assert statuses(responses) == [200] * COUNT
    assert time.perf_counter() - start >= len(busy.both) * (COUNT - 1) * REST_SECONDS


def test_a_pipeline_that_rests_ends_as_any_other(busy):
    responses, _ = busy.talk(HEALTH * COUNT + b"GET / HTTP/9.9\r\n\r\n")
    assert statuses(responses) == [200] * COUNT + [400]
    assert responses.endswith(b"<closed>")


def test_lines_of_one_list_of_proxies_are_joined(servers, monkeypatch):
    seen = []
    for server in servers.both:
        monkeypatch.setattr(server.service, "addresses", lambda headers, _: str(seen.append(headers[FORWARDED_FOR])))
    lines = b"X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 10.0.0.7\r\nHost:"
    servers.talk(topk().replace(b"Host:", lines, 1), topk().replace(b"Host:", lines, 1))
    assert set(seen) == {b"1.2.3.4, 10.0.0.7"}


async def leave(server, request):
    """Ask and be gone; returns once the server knows."""
    transport, _ = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", server.port)
    transport.write(request)
    await asyncio.sleep(2 * REST_SECONDS)
    transport.abort()
    while server.state.connections:
        await asyncio.sleep(REST_SECONDS)
    await asyncio.sleep(2 * REST_SECONDS)


def test_nobody_is_answered_who_leaves_while_a_pipeline_rests(busy):
    server = busy.both[0]
    before = server.state.total_requests
    busy.runner.run(leave(server, HEALTH * COUNT))
    assert not server.state.connections
    assert server.state.total_requests < before + COUNT
    server.state.total_requests = before  # which the servers have in common
    responses, _ = busy.talk(HEALTH)
    assert statuses(responses) == [200]


async def reset(server):
    """A connection of the server that its client has reset, and that the server has lost."""
    before = set(server.state.connections)
    transport, _ = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", server.port)
    while not (connections := set(server.state.connections) - before):
        await asyncio.sleep(REST_SECONDS)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
    (connection,) = connections
    while connection in server.state.connections:
        await asyncio.sleep(REST_SECONDS)
    return connection


def test_no_timer_holds_a_connection_that_was_reset(servers):
    for server in servers.both:
        connection = servers.runner.run(reset(server))
        assert not connection.idle
        assert connection.timeout_keep_alive_task is None


def sum_durations(server):
    server.service.settle()
    lines = server.service.metrics.render().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("shortlist_request_duration_seconds_sum"))


async def ask_slowly(server, *parts):
    """Send parts of a request with a pause after each, and be gone."""
    transport, _ = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", server.port)
    for part in parts:
        transport.write(part)
        await asyncio.sleep(PAUSE_SECONDS)
    transport.close()
    await asyncio.sleep(PAUSE_SECONDS / 4)


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_time_that_a_client_takes_to_send_is_no_time_of_the_request(servers, is_whole):
    request = topk()
    parts = [request[:-5], request[-5:]] if is_whole else [request[:-5]]
    for server in servers.both:
        before = sum_durations(server)
        servers.runner.run(ask_slowly(server, *parts))
        assert 0 < sum_durations(server) - before < PAUSE_SECONDS / 2
