"""One blocking client in threads, in forked processes, and across restarts of its server."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import shortlist

from tests.support.layers import RunningServer, make_contexts
from tests.support.servers.clients import ScriptedServer, respond

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=16, seed=6).contexts


def test_threads_share_a_client(small_server, head):
    expected = head.topk(ROWS, 3)

    def ask(row):
        return [client.topk("lm", ROWS[[row]], 3).ids for _ in range(20)]

    with shortlist.Client(small_server.url) as client, ThreadPoolExecutor(8) as pool:
        for row, answers in enumerate(pool.map(ask, range(16))):
            assert all(np.array_equal(ids[0], expected.ids[row]) for ids in answers)


@pytest.mark.parametrize("user", ["", "user:word@"])  # httpx carries the second
def test_a_forked_process_uses_connections_of_its_own(tmp_path, user):
    with ScriptedServer(tmp_path, lambda _: [respond(b'{"models": []}')]) as server:
        with shortlist.Client(server.url.replace("//", f"//{user}")) as client:
            client.models()
            child = os.fork()
            if child == 0:
                try:
                    client.models()
                    os._exit(0)
                finally:
                    os._exit(1)
            assert os.waitpid(child, 0)[1] == 0
            client.models()
        assert [number for number, _, _ in server.requests] == [1, 2, 1]


@pytest.mark.parametrize("rows", [1, 3000])
def test_large_requests_arrive_whole(tmp_path, rows):
    values = np.arange(rows * 400, dtype=np.float32).reshape(rows, 400)
    with ScriptedServer(tmp_path, lambda _: [0.05, respond(b"{}", "400 Bad Request")]) as server:
        for url in (server.url, server.unix_url):
            with shortlist.Client(url) as client, pytest.raises(shortlist.errors.BadInput):
                client.topk("lm", values, 1)
        assert all(body.endswith(values.tobytes()) for _, _, body in server.requests)


def test_a_server_that_was_started_again_is_found(small_repository, tmp_path):
    path = tmp_path / "s.sock"
    with shortlist.Client(f"unix://{path}") as client:
        answers = []
        for _ in range(2):
            with RunningServer(small_repository, "--unix-socket", str(path)):
                answers.append(client.topk("lm", ROWS, 2).ids)
        assert not client.ready()
    assert np.array_equal(*answers)
