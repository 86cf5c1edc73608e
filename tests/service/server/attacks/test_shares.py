"""However much one client asks for, others find room; and nobody gets more than its quota."""

from __future__ import annotations

import contextlib
import gzip

import pytest

from tests.support.layers import RunningServer
from tests.support.servers.responses import read_refusal

from .conftest import TIMERS
from .wire import (
    check_neighbour,
    connect,
    infer,
    many_rows,
    read_metric,
    read_responses,
    request,
    topk_body,
    wait_until,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def slow_server(small_repository):
    """A server that computes 64 rows at a time, each exactly, with room for 8,192."""
    flags = ("--batch-rows", "1", "--request-timeout", "300", "--inline-us", "0")
    with RunningServer(small_repository, *TIMERS, *flags) as running:
        yield running


def test_one_clients_large_requests_leave_room_for_others(slow_server):
    """Two of 4,096 rows each filled the queue, and every other client got 429 until they were computed."""
    with contextlib.ExitStack() as stack:
        greedy = [stack.enter_context(connect(slow_server, "127.0.0.2")) for _ in range(2)]
        for connection in greedy:
            connection.sendall(infer(many_rows(4096), exact=True))
        wait_until(lambda: read_metric(slow_server, "shortlist_held_rows") >= 3000)
        modest = [stack.enter_context(connect(slow_server, f"127.0.0.{number}")) for number in range(3, 9)]
        for connection in modest:
            connection.sendall(infer(many_rows(1)) * 5)
        statuses = [status for each in modest for _, (status, _) in zip(range(5), read_responses(each), strict=False)]
        assert statuses == [200] * 30
        assert read_metric(slow_server, "shortlist_held_rows") > 0  # they did not wait for the greedy one
        assert sorted(next(read_responses(each))[0] for each in greedy) == [200, 429]
    check_neighbour(slow_server)


def test_short_deadlines_are_kept_beside_long_queues(slow_server):
    """What a modest client waits for is not all that a greedy one has asked for."""
    with connect(slow_server, "127.0.0.2") as greedy, connect(slow_server, "127.0.0.3") as modest:
        greedy.sendall(infer(many_rows(4096), exact=True))
        wait_until(lambda: read_metric(slow_server, "shortlist_held_rows") >= 3000)
        modest.sendall(infer(many_rows(1), timeout=1_000_000))
        assert next(read_responses(modest))[0] == 200
        assert next(read_responses(greedy))[0] == 200
    check_neighbour(slow_server)


def test_forwarded_addresses_are_believed_of_trusted_proxies_alone(small_repository):
    body = topk_body()
    for flags, statuses in (((), {200, 429}), (("--trusted-proxies", "127.0.0.0/8, ::1"), {200})):
        with RunningServer(small_repository, *TIMERS, *flags, "--quota-rows", "1") as server:
            came = {
                server.http.post("/v1/topk", content=body, headers={"X-Forwarded-For": f"10.0.0.{number}"}).status_code
                for number in range(30)
            }
        assert came == statuses


def test_a_quota_of_each_client(small_repository):
    with RunningServer(small_repository, *TIMERS, "--quota-rows", "2") as server:
        for _ in range(2):  # by the fast path, and without
            with connect(server, "127.0.0.2") as connection:
                connection.sendall(request("/v1/topk", topk_body()) * 30)
                statuses = [status for _, (status, _) in zip(range(30), read_responses(connection), strict=False)]
            assert set(statuses) <= {200, 429}
            assert 429 in statuses
        assert statuses.count(200) < 20
        many = server.http.post("/v1/topk", content=topk_body(8))  # more than a second's, but the first
        assert many.status_code == 200
        for _ in range(3):
            refusal = server.http.post("/v1/topk", content=topk_body(8))
        assert "quota of 2 rows a second" in read_refusal(refusal, 429)
        assert 1 <= int(refusal.headers["retry-after"]) <= 20


def test_a_quota_of_each_key(small_repository):
    """Who has a key of their own has a quota of their own, whatever address they ask from."""
    keys = {"SHORTLIST_API_KEYS": "; ".join(f"{name} ask {name * 20}" for name in ("a", "b"))}
    with RunningServer(small_repository, *TIMERS, "--quota-rows", "2", variables=keys) as server:
        for name in ("a", "b"):
            headers = {"Authorization": f"Bearer {name * 20}"}
            responses = [server.http.post("/v1/topk", content=topk_body(8), headers=headers) for _ in range(4)]
            assert [response.status_code for response in responses] == [200, 200, 200, 429]


def test_large_bodies_wait_for_their_turn_by_client(small_repository):
    """A client with many of them does not keep those of others from being decoded, and so many wait at most."""
    useless = b'{"x": [' + b",".join([b"1.5"] * 400_000) + b"]}"
    useful = topk_body() + b" " * 100_000
    with RunningServer(small_repository, *TIMERS) as server, contextlib.ExitStack() as stack:
        greedy = [stack.enter_context(connect(server, "127.0.0.2")) for _ in range(100)]
        for connection in greedy:
            connection.sendall(request("/v1/topk", gzip.compress(useless, 1), "Content-Encoding: gzip"))
        modest = stack.enter_context(connect(server, "127.0.0.3"))
        modest.sendall(request("/v1/topk", useful))
        assert next(read_responses(modest))[0] == 200
        assert {next(read_responses(each))[0] for each in greedy} == {400, 429}
        check_neighbour(server)
