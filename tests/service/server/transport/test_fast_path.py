"""The fast path sends and counts what uvicorn's own way does, byte for byte, over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import re
from contextlib import AsyncExitStack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fast_path import (
    ROWS,
    Client,
    Server,
    Servers,
    infer,
    post,
    statuses,
    topk,
)
from tests.support.layers import CLASSES, DIM

pytestmark = pytest.mark.slow

INFER = "/v2/models/lm/infer"


@pytest.fixture(scope="module")
def servers(small_repository):
    pair = Servers(small_repository)
    for _ in range(20):  # speeds are known, so that small work is known to be small
        pair.talk(*[infer(model="dense"), infer(), topk()] * 3)
    yield pair
    pair.close()


@pytest.mark.parametrize("ask", [infer, topk])
def test_requests_whose_head_is_known_take_the_fast_path(servers, ask):
    servers.talk(ask())
    responses, fast = servers.talk(*[ask() for _ in range(6)])
    assert statuses(responses) == [200] * 6
    assert fast == 6
    assert responses.endswith(b"<open>")


def test_rows_of_their_own_and_another_head_in_between(servers):
    requests = [infer(row=row, id="7" * (row % 3)) for row in range(12)]
    servers.talk(*requests)
    responses, fast = servers.talk(*requests)
    assert statuses(responses) == [200] * 12
    assert fast == 12


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        (infer(k=0), 400),
        (infer(k=CLASSES + 1), 400),
        (infer(k=4).replace(ROWS[0].tobytes(), np.full(DIM, np.nan, np.float32).tobytes()), 400),
        (infer(k=4).replace(ROWS[0].tobytes(), np.full(DIM, 3e38, np.float32).tobytes()), 400),
        (infer(model="nope"), 404),
        (topk(model="nope"), 404),
        (topk(k=0), 400),
        (post(INFER, b"{}"), 400),
        (post("/v1/topk", b"{"), 400),
        (post("/v1/topk", b""), 400),
        (post("/v1/topk", b"", length="x"), 400),
        (post(INFER, b"x" * 10, "Content-Encoding: br"), 415),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
        (b"DELETE /v1/topk HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (post("/v1/topk", b"", length=2 << 20), 413),
    ],
)  # fmt: skip
def test_failures(servers, wrong, status):
    responses, _ = servers.talk(infer(), wrong, infer(), wrong, wrong, infer())
    codes = statuses(responses)
    assert codes[:2] == [200, status]
    assert codes[2:] in ([200, status, status, 200], [])


def test_a_wrong_request_is_refused_by_the_fast_path(servers):
    """Its head is that of right ones."""
    wrong = infer(k=4).replace(ROWS[0].tobytes(), np.full(DIM, np.inf, np.float32).tobytes())
    servers.talk(infer(k=4))
    responses, fast = servers.talk(infer(k=4), wrong, infer(k=4))
    assert (statuses(responses), fast) == ([200, 400, 200], 3)


@pytest.mark.parametrize(
    ("unusual", "end"),
    [
        (infer(headers=["Connection: close"]), b"<closed>"),
        (infer(headers=["Expect: 100-continue"]), b"<open>"),
        (infer(headers=["Upgrade: h2c", "Connection: upgrade"]), b"<open>"),
        (infer().replace(b"HTTP/1.1", b"HTTP/1.0"), b"<closed>"),
        (infer().replace(b"Host: localhost\r\n", b"Host: localhost\r\n\r\n", 1), b"<closed>"),
        (infer().replace(b"Host: localhost\r\n", b"Host: localhost\n", 1), b"<closed>"),
        (b"\r\n" + infer(), b"<open>"),
        (infer() + b"\r\n", b"<open>"),
        (infer(headers=[f"X-Long: {'x' * 4000}"]), b"<open>"),
    ],
)  # fmt: skip
def test_unusual_requests_go_uvicorns_way(servers, unusual, end):
    usual = infer()
    responses, fast = servers.talk(usual, usual, unusual, unusual)
    assert fast == 2
    assert responses.endswith(end)


def test_a_head_may_say_that_its_connection_stays_open(servers):
    usual = infer(headers=["Connection: Keep-Alive"])
    servers.talk(usual)
    assert servers.talk(usual, usual)[1] == 2


@pytest.mark.parametrize(
    "name", ["traceparent", "Traceparent", "tracestate", "X-Request-Id", "x-b3-traceid", "X-Datadog-Parent-Id"]
)
def test_headers_of_tracing_may_differ(servers, name):
    servers.talk(infer(headers=[f"{name}: first"]))
    responses, fast = servers.talk(*[infer(headers=[f"{name}: {number}", "b3: 1"]) for number in range(4)], infer())
    assert (statuses(responses), fast) == ([200] * 5, 5)


def test_heads_in_use_outlive_any_number_of_others(servers):
    usual = infer(headers=["X-Usual: yes"])
    servers.talk(usual)
    for turn in range(6):
        servers.talk(*[infer(headers=[f"X-Made-Up: {turn} {number}"]) for number in range(300)])
        assert servers.talk(usual)[1] == 1


def test_other_headers_may_not(servers):
    servers.talk(infer(headers=["X-Other: first"]))
    assert servers.talk(infer(headers=["X-Other: second"]))[1] == 0


@pytest.mark.parametrize("line", ["traceparent : 1", "traceparent: \x01", "traceparent: 1\r\n 2", "tracepar\nent: 1"])
def test_what_the_parser_refuses_is_refused_though_it_looks_like_tracing(servers, line):
    servers.talk(infer())
    responses, fast = servers.talk(infer(), infer(headers=[line]))
    assert (statuses(responses), fast) == ([200, 400], 1)


def test_chunked_bodies_go_uvicorns_way(servers):
    body = infer().partition(b"\r\n\r\n")[2]
    head = infer().partition(b"\r\n\r\n")[0].replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nX-Was: ", 1)
    chunked_request = head + b"\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    responses, fast = servers.talk(infer(), infer(), chunked_request, chunked_request, infer())
    assert (statuses(responses), fast) == ([200] * 5, 3)


def test_pipelined_requests_are_answered_in_order(servers):
    one, two = infer(id="one"), infer(id="two")
    servers.talk(one, two)
    responses, _ = servers.talk(one, one + two, two + one, one, two + two[:40], two[40:], one)
    order = re.findall(rb'"id":"(\w+)"', responses)
    assert order == [b"one", b"one", b"two", b"two", b"one", b"one", b"two", b"two", b"one"]


def test_a_half_head_behind_an_answer_is_not_forgotten(servers):
    """The parser holds its first bytes, so what comes next is no new request."""
    usual = infer()
    responses, fast = servers.talk(usual, usual + usual[:30], usual[30:], usual)
    assert (statuses(responses), fast) == ([200] * 4, 2)
    responses, fast = servers.talk(usual, usual + b"POST /x?", usual, usual)
    assert statuses(responses)[:2] == [200, 200]
    assert fast == 1


PIECES = {
    "infer": infer(),
    "other": infer(row=3, k=5),
    "wrong": infer(k=0),
    "topk": topk(),
    "get": b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "close": infer(headers=["Connection: close"]),
    "garbage": b"\x00\x01 nonsense\r\n\r\n",
}


@given(
    st.lists(st.sampled_from(sorted(PIECES)), min_size=1, max_size=6), st.lists(st.integers(0, 2000), max_size=4)
)  # fmt: skip
def test_any_conversation_cut_anywhere(servers, names, cuts):
    whole = b"".join(PIECES[name] for name in names)
    marks = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    servers.talk(PIECES["infer"], *(whole[start:end] for start, end in itertools.pairwise(marks)))


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
    servers.talk(usual, late)
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
