"""The fast path of a server that is busy, stops, loads again, has limits or asks for keys: as uvicorn's own way."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack

import pytest

from tests.support.servers.fast_path import (
    Client,
    Server,
    infer,
    post,
    statuses,
    topk,
)

pytestmark = pytest.mark.slow


def test_tasks_that_would_wait_go_uvicorns_way(servers, monkeypatch):
    server, usual = servers.both[0], infer(id="of its own")
    servers.talk(usual)
    batcher = server.service.find_model("lm", None).batcher
    find_model, decodes = server.service.find_model, []

    def count_decodes(*arguments):
        decodes.append(arguments)
        return find_model(*arguments)

    monkeypatch.setattr(server.service, "find_model", count_decodes)
    try:
        batcher.inline = 0.0
        responses, fast = servers.talk(*[usual] * 19)
        assert (statuses(responses), fast) == ([200] * 19, 0)
        assert len(decodes) == 19 + 2  # not decoded twice every time
    finally:
        batcher.inline = 1.0
    responses, fast = servers.talk(*[usual] * 40)
    assert statuses(responses) == [200] * 40
    assert fast >= 20  # they are tried again after a while


@pytest.fixture
def slow_models(servers):
    """The servers' models, which compute nothing inline."""
    models = [server.service.find_model("lm", None) for server in servers.both]
    for model in models:
        model.batcher.inline = 0.0
    yield models
    for model in models:
        model.batcher.inline, model.admission.row_seconds = 1.0, 0.0


def test_a_refusal_of_what_would_wait_too_long_takes_the_fast_path(servers, slow_models):
    """Most of what a busy server gets is refused, and what it accepts meanwhile does not change that."""
    servers.talk(infer())
    fast = []
    for held, status, count in ((0, 200, 20), (100, 429, 20), (0, 200, 2), (100, 429, 20)):
        before = servers.both[0].fast_path.responses
        for server, model in zip(servers.both, slow_models, strict=True):
            model.admission.row_seconds = 1.0
            model.admission.row_shares.add("another", held)
            assert statuses(servers.runner.run(server.talk([infer()] * count))) == [status] * count
            model.admission.row_shares.add("another", -held)
        fast.append(servers.both[0].fast_path.responses - before)
    assert fast[0] == fast[2] == 0
    assert 0 < fast[1] < fast[3] == 20


def test_the_numbers_of_a_request_that_is_refused_are_not_read(servers, slow_models):
    wrong = infer()[:-4] + b"\x00\x00\xc0\x7f"
    responses, _ = servers.talk(infer(), wrong)
    assert statuses(responses) == [200, 400]
    for server, model in zip(servers.both, slow_models, strict=True):
        model.admission.row_seconds = 1.0
        model.admission.row_shares.add("another", 100)
        assert statuses(servers.runner.run(server.talk([wrong]))) == [429]
        model.admission.row_shares.add("another", -100)


def test_an_idle_connection_is_closed_and_a_fast_response_keeps_it(servers):
    """Its timer is not set anew with every answer."""

    async def idle(server):
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(Client, "127.0.0.1", server.port)
        start = loop.time()
        for _ in range(4):
            transport.write(infer())
            await asyncio.sleep(0.1)
        assert not client.closed
        while not client.closed:
            await asyncio.sleep(0.005)
            assert loop.time() < start + 5
        return loop.time() - start

    for server in servers.both:
        server.config.timeout_keep_alive = 0.25
        assert 0.5 < servers.runner.run(idle(server)) < 0.8
        server.config.timeout_keep_alive = 75


def test_overload_and_deadlines_are_the_same(servers):
    usual, late = infer(), topk(timeout=1e-6)
    servers.warm(usual, late)
    responses, fast = servers.talk(usual, late, late)
    assert (statuses(responses), fast) == ([200, 504, 504], 3)
    for server in servers.both:
        server.service.admission.row_shares.add("another", server.settings.queue_rows)
    responses, fast = servers.talk(usual, usual, usual)
    for server in servers.both:
        server.service.admission.row_shares.add("another", -server.settings.queue_rows)
    assert (statuses(responses), fast) == ([429] * 3, 3)
    assert responses.count(b"retry-after: 1\r\n") == 3


def test_a_server_that_stops_hangs_up_after_its_answer(servers):
    servers.talk(infer())
    for server in servers.both:
        server.service.closing = True
    responses, fast = servers.talk(infer(), infer())
    for server in servers.both:
        server.service.closing = False
    assert (statuses(responses), fast) == ([200], 0)
    assert responses.endswith(b"<closed>")


def test_a_model_that_is_loaded_again_or_unloaded(servers):
    usual = infer(model="dense", id="again")
    load, unload = (post(f"/v2/repository/models/dense/{what}", b"") for what in ("load", "unload"))
    responses, _ = servers.talk(usual, usual, unload, usual, usual, load, usual, usual)
    assert statuses(responses) == [200, 200, 200, 503, 503, 200, 200, 200]


def test_a_body_over_the_servers_limit_is_refused_every_time(small_repository):
    """Also where that is under the largest body that the fast path takes."""
    runner, stack, body = asyncio.Runner(), AsyncExitStack(), infer()
    server = Server(small_repository, fast=True, body_limit=len(body.partition(b"\r\n\r\n")[2]) - 1)
    try:
        runner.run(server.start(stack))
        responses = runner.run(server.talk([body] * 4))
        assert (statuses(responses), server.fast_path.responses) == ([413] * 4, 0)
    finally:
        runner.run(stack.aclose())
        runner.close()


def test_the_caches_say_how_many_entries_they_hold(servers):
    servers.talk(infer(id="one more"), infer(id="one more"))
    text = servers.both[0].service.metrics.render().decode()
    sizes = {
        cache: float(size) for cache, size in re.findall(r'^shortlist_cache_entries{cache="(\w+)"} (.*)$', text, re.M)
    }
    assert sizes.keys() == {"heads", "paths", "templates"}
    assert min(sizes.values()) >= 1


def test_a_key_is_asked_for_by_the_fast_path_too(small_repository, tmp_path):
    """What it remembers holds as long as the keys by which it was permitted."""
    keys, secret = tmp_path / "keys", "s" * 20
    keys.write_text(f"decoder ask {secret}\n")
    runner, stack = asyncio.Runner(), AsyncExitStack()
    server = Server(small_repository, fast=True, api_keys_file=keys)
    permitted, refused = (infer(headers=[f"Authorization: Bearer {each}"]) for each in (secret, "t" * 20))
    without = infer()
    elsewhere = permitted.replace(b"Host: localhost", b"Host: evil.test")
    try:
        runner.run(server.start(stack))
        runner.run(server.talk([permitted] * 60))  # its speed is known
        before = server.fast_path.responses
        responses = runner.run(server.talk([permitted] * 6))
        assert statuses(responses) == [200] * 6
        assert server.fast_path.responses - before == 6
        before, known = server.fast_path.responses, len(server.gateway.fast_path.heads)
        responses = runner.run(server.talk([refused, refused, without, without, elsewhere, elsewhere]))
        assert statuses(responses) == [401] * 4 + [403] * 2
        assert server.fast_path.responses == before
        assert len(server.gateway.fast_path.heads) == known, "what was refused is not remembered"
        keys.write_text(f"decoder ask {'u' * 20}\n")
        server.service.access.reload()
        assert statuses(runner.run(server.talk([permitted] * 3))) == [401] * 3
        keys.write_text(f"decoder ask {secret}\n")
        server.service.access.reload()
        before = server.fast_path.responses
        assert statuses(runner.run(server.talk([permitted] * 4))) == [200] * 4
        assert server.fast_path.responses - before == 3
    finally:
        runner.run(stack.aclose())
        runner.close()
