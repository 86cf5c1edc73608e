"""The asyncio transport: tasks that are cancelled, many at a time, one loop after another."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest
import shortlist
from shortlist.client.transport.asynchronous import MAX_CONNECTIONS

from tests.support.servers.clients import ScriptedServer, respond

pytestmark = pytest.mark.slow

MODELS = respond(b'{"models": []}')


def test_a_connection_whose_task_was_cancelled_is_not_used_again(tmp_path):
    async def run(url):
        async with shortlist.AsyncClient(url) as client:
            task = asyncio.ensure_future(client.models())
            while not server.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await client.models()

    slow = respond(b'{"models": [1]}')
    with ScriptedServer(tmp_path, lambda number: [0.2, slow] if number == 0 else [MODELS]) as server:
        assert asyncio.run(run(server.url)) == []
        assert [number for number, _, _ in server.requests] == [1, 2]


def test_many_requests_share_a_bounded_number_of_connections(tmp_path):
    async def run(url):
        async with shortlist.AsyncClient(url) as client:
            return await asyncio.gather(*(client.models() for _ in range(3 * MAX_CONNECTIONS)))

    with ScriptedServer(tmp_path, lambda _: [0.01, MODELS]) as server:
        assert asyncio.run(run(server.url)) == [[]] * (3 * MAX_CONNECTIONS)
        assert server.connection_count <= MAX_CONNECTIONS


def test_the_timeout_is_also_for_the_wait_for_a_connection(tmp_path):
    """Nothing answers: of so many requests the last ones would fail after ten timeouts."""

    async def run(url):
        async with shortlist.AsyncClient(url, timeout=0.5) as client:
            calls = (client.models() for _ in range(10 * MAX_CONNECTIONS))
            return await asyncio.gather(*calls, return_exceptions=True)

    with ScriptedServer(tmp_path, lambda _: []) as server:
        start = time.monotonic()
        errors = asyncio.run(run(server.url))
        assert time.monotonic() - start < 2.5
    assert {type(error) for error in errors} == {shortlist.errors.Unreachable}
    sentence = f"none of 100 connections to {server.url} was free within 0.5 s: raise timeout or send fewer"
    assert any(sentence in str(error) for error in errors)


def test_who_got_no_connection_in_time_keeps_no_place(tmp_path):
    async def run(url):
        async with shortlist.AsyncClient(url, timeout=0.3) as client:
            calls = (client.models() for _ in range(2 * MAX_CONNECTIONS))
            await asyncio.gather(*calls, return_exceptions=True)
            return client.transport.open.places.free

    with ScriptedServer(tmp_path, lambda _: []) as server:
        assert asyncio.run(run(server.url)) == MAX_CONNECTIONS


LOOPS = """
import asyncio, sys, shortlist
client = shortlist.AsyncClient(sys.argv[1])
async def run():
    return [await client.models() for _ in range(2)]
for _ in range(3):
    print(asyncio.run(run()))
"""


def test_one_loop_after_another(tmp_path):
    """In a process of its own: what belonged to a loop that is closed is nobody's to close, which is a warning."""
    with ScriptedServer(tmp_path, lambda _: [MODELS]) as server:
        command = [sys.executable, "-c", LOOPS, server.url]
        process = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert process.stdout == "[[], []]\n" * 3
        assert [number for number, _, _ in server.requests] == [1, 1, 2, 2, 3, 3]


def test_a_closed_client_refuses(tmp_path):
    async def run(url):
        async with shortlist.AsyncClient(url) as client:
            await client.models()
        with pytest.raises(RuntimeError, match="the client is closed"):
            await client.models()

    with ScriptedServer(tmp_path, lambda _: [MODELS]) as server:
        asyncio.run(run(server.url))
