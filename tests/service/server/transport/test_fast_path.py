"""The straight way of small questions says and counts what uvicorn's own way does, byte for byte, over real sockets."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from contextlib import AsyncExitStack

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shortlist.server.app import create_app
from shortlist.server.settings import Settings
from shortlist.server.transport.gateway import Gateway
from shortlist.server.transport.process import configure
from uvicorn.server import ServerState

from tests.support.layers import CLASSES, DIM, make_contexts

ROWS = make_contexts(rows=40, seed=5).contexts
INFER = "/v2/models/lm/infer"
TRAVEL = 0.002  # seconds that bytes take through the loopback interface, and more
DATE = (b"date", b"Sat, 21 Nov 2026 18:00:00 GMT")
STATUS = re.compile(rb"HTTP/1\.1 (\d+) ")
COUNTS = re.compile(r"^(shortlist_(?:requests_total|rows_total|held|\w+_count|\w+_classes_(?:sum|bucket)).*)$", re.M)


class Way:
    """One server on a socket of this machine. straight: answers given by the straight way, counted."""

    def __init__(self, repository, **settings):
        self.settings = Settings(repository=repository, threads=1, inline_us=1e6, **settings)
        self.app = create_app(self.settings)
        self.service = self.app.state.service
        self.gateway = Gateway(self.app, self.service)
        self.answer, self.straight = self.gateway.straight.answer, 0
        self.gateway.straight.answer = self.counted
        self.closed, self.tried = False, 0
        decoded = self.service.decoded

        def tried(*arguments):
            self.tried += self.trying
            return decoded(*arguments)

        self.service.decoded, self.trying = tried, False

    def counted(self, *arguments):
        self.trying = True
        found = None if self.closed else self.answer(*arguments)
        self.trying = False
        self.straight += found is not None
        return found

    async def start(self, stack):
        await stack.enter_async_context(self.app.router.lifespan_context(self.app))
        self.config = config = configure(self.gateway, self.settings)
        config.load()
        self.state = ServerState()
        self.state.default_headers = [DATE]
        server = await asyncio.get_running_loop().create_server(
            lambda: config.http_protocol_class(config=config, server_state=self.state, app_state={}), "127.0.0.1", 0
        )
        stack.callback(server.close)
        self.port = server.sockets[0].getsockname()[1]
        for _ in range(600):
            if self.service.is_ready():
                return
            await asyncio.sleep(0.1)
        raise AssertionError("not ready")

    async def talk(self, parts):
        """Send each part once the server has done what it could with the one before; all that it said."""
        transport, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", self.port)
        for part in parts:
            transport.write(part)
            await self.done()
        transport.close()
        return bytes(client.came) + (b"<closed>" if client.closed else b"<open>")

    async def done(self):
        """Until no connection has a request that is complete and not answered."""
        await asyncio.sleep(TRAVEL)
        while any(
            each.cycle and not (each.cycle.response_complete or each.cycle.more_body) for each in self.state.connections
        ):
            await asyncio.sleep(TRAVEL)
        await asyncio.sleep(TRAVEL)

    def counts(self):
        self.service.settle()
        return COUNTS.findall(self.service.metrics.render().decode())


def busy(connection):
    cycle = connection.cycle
    return cycle is not None and not cycle.response_complete and not cycle.more_body


class Client(asyncio.Protocol):
    """Remembers what comes."""

    closed = False

    def __init__(self):
        self.came = bytearray()

    def data_received(self, data):
        self.came += data

    def connection_lost(self, exc):
        self.closed = True


class Ways:
    """Two servers over one repository; the second one's straight way is closed."""

    def __init__(self, repository):
        self.runner, self.stack = asyncio.Runner(), AsyncExitStack()
        self.both = [Way(repository, body_limit=1 << 20, max_rows=100) for _ in range(2)]
        self.both[1].closed = True
        for way in self.both:
            self.runner.run(way.start(self.stack))

    def talk(self, *parts):
        """The same conversation both ways; what the server said, and how many answers were straight."""
        before = self.both[0].straight
        said = [self.runner.run(way.talk(parts)) for way in self.both]
        assert said[0] == said[1]
        assert self.both[0].counts() == self.both[1].counts()
        assert self.both[0].state.total_requests == self.both[1].state.total_requests
        for way in self.both:
            assert (way.service.admission.rows, way.service.admission.bytes) == (0, 0)
        return said[0], self.both[0].straight - before

    def close(self):
        self.runner.run(self.stack.aclose())
        self.runner.close()


@pytest.fixture(scope="module")
def ways(small_repository):
    made = Ways(small_repository)
    for _ in range(20):  # speeds are known, so that small work is known to be small
        made.talk(*[infer(model="dense"), infer(), topk()] * 3)
    yield made
    made.close()


def post(path, body, *headers, length=None, version="1.1"):
    lines = [f"POST {path} HTTP/{version}", "Host: x", f"Content-Length: {len(body) if length is None else length}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + body


def infer(row=0, rows=1, k=3, model="lm", headers=(), **fields):
    numbers = np.ascontiguousarray(ROWS[row : row + rows])
    context = {"name": "context", "shape": [rows, DIM], "datatype": "FP32"}
    context["parameters"] = {"binary_data_size": numbers.nbytes}
    content = {"inputs": [context], "parameters": {"k": k, "binary_data_output": True}} | fields
    text = json.dumps(content).encode()
    length = f"Inference-Header-Content-Length: {len(text)}"
    return post(f"/v2/models/{model}/infer", text + numbers.tobytes(), length, *headers)


def topk(row=0, k=3, **fields):
    content = {"model": "lm", "contexts": ROWS[row : row + 1].tolist(), "k": k} | fields
    return post("/v1/topk", json.dumps(content).encode(), "Content-Type: application/json")


def statuses(said):
    return [int(status) for status in STATUS.findall(said)]


@pytest.mark.parametrize("ask", [infer, topk])
def test_all_but_the_first_of_a_connection_are_answered_straight(ways, ask):
    ways.talk(ask())
    said, straight = ways.talk(*[ask() for _ in range(6)])
    assert statuses(said) == [200] * 6
    assert straight == 5
    assert said.endswith(b"<open>")


def test_rows_of_their_own_and_another_head_in_between(ways):
    asked = [infer(row=row, id="7" * (row % 3)) for row in range(12)]
    ways.talk(*asked)
    said, straight = ways.talk(*asked)
    assert statuses(said) == [200] * 12
    assert straight == 11


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
        (post(INFER, b"x" * 10, "Content-Encoding: br"), 501),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", 200),
        (b"DELETE /v1/topk HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (post("/v1/topk", b"", length=2 << 20), 413),
    ],
)  # fmt: skip
def test_failures(ways, wrong, status):
    said, _ = ways.talk(infer(), wrong, infer(), wrong, wrong, infer())
    found = statuses(said)
    assert found[:2] == [200, status]
    assert found[2:] in ([200, status, status, 200], [])


def test_a_wrong_request_is_refused_straight(ways):
    """Its head is that of right ones."""
    wrong = infer(k=4).replace(ROWS[0].tobytes(), np.full(DIM, np.inf, np.float32).tobytes())
    ways.talk(infer(k=4))
    said, straight = ways.talk(infer(k=4), wrong, infer(k=4))
    assert (statuses(said), straight) == ([200, 400, 200], 2)


@pytest.mark.parametrize(
    ("unusual", "end"),
    [
        (infer(headers=["Connection: close"]), b"<closed>"),
        (infer(headers=["Connection: keep-alive"]), b"<open>"),
        (infer(headers=["Expect: 100-continue"]), b"<open>"),
        (infer(headers=["Upgrade: h2c", "Connection: upgrade"]), b"<open>"),
        (infer().replace(b"HTTP/1.1", b"HTTP/1.0"), b"<closed>"),
        (infer().replace(b"Host: x\r\n", b"Host: x\r\n\r\n", 1), b"<closed>"),
        (infer().replace(b"Host: x\r\n", b"Host: x\n", 1), b"<closed>"),
        (b"\r\n" + infer(), b"<open>"),
        (infer() + b"\r\n", b"<open>"),
        (infer(headers=[f"X-Long: {'x' * 4000}"]), b"<open>"),
    ],
)  # fmt: skip
def test_unusual_requests_go_uvicorns_way(ways, unusual, end):
    usual = infer()
    said, straight = ways.talk(usual, usual, unusual, unusual)
    assert straight == 1
    assert said.endswith(end)


def test_chunked_bodies_go_uvicorns_way(ways):
    body = infer().partition(b"\r\n\r\n")[2]
    head = infer().partition(b"\r\n\r\n")[0].replace(b"Content-Length: ", b"Transfer-Encoding: chunked\r\nX-Was: ", 1)
    chunked = head + b"\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    said, straight = ways.talk(infer(), infer(), chunked, chunked, infer())
    assert (statuses(said), straight) == ([200] * 5, 2)


def test_pipelined_requests_are_answered_in_order(ways):
    one, two = infer(id="one"), infer(id="two")
    ways.talk(one, two)
    said, _ = ways.talk(one, one + two, two + one, one, two + two[:40], two[40:], one)
    order = re.findall(rb'"id":"(\w+)"', said)
    assert order == [b"one", b"one", b"two", b"two", b"one", b"one", b"two", b"two", b"one"]


def test_a_half_head_behind_an_answer_is_not_forgotten(ways):
    """The parser holds its first bytes, so what comes next is no new request."""
    usual = infer()
    said, straight = ways.talk(usual, usual + usual[:30], usual[30:], usual)
    assert (statuses(said), straight) == ([200] * 4, 1)
    said, straight = ways.talk(usual, usual + b"POST /x?", usual, usual)
    assert statuses(said)[:2] == [200, 200]
    assert straight == 0


PIECES = {
    "infer": infer(),
    "other": infer(row=3, k=5),
    "wrong": infer(k=0),
    "topk": topk(),
    "get": b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "close": infer(headers=["Connection: close"]),
    "garbage": b"\x00\x01 nonsense\r\n\r\n",
}


@given(
    st.lists(st.sampled_from(sorted(PIECES)), min_size=1, max_size=6), st.lists(st.integers(0, 2000), max_size=4)
)  # fmt: skip
def test_any_conversation_cut_anywhere(ways, names, cuts):
    whole = b"".join(PIECES[name] for name in names)
    marks = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    ways.talk(PIECES["infer"], *(whole[start:end] for start, end in itertools.pairwise(marks)))


def test_work_that_would_wait_goes_uvicorns_way(ways):
    straight, usual = ways.both[0], infer(id="of its own")
    ways.talk(usual)
    batcher = next(each for model, each in straight.service.all_served.items() if model.name == "lm").batcher
    try:
        batcher.inline = 0.0
        tried = straight.tried
        said, count = ways.talk(*[usual] * 19)
        assert (statuses(said), count) == ([200] * 19, 0)
        assert straight.tried - tried == 2  # not decoded twice every time
    finally:
        batcher.inline = 1.0
    said, count = ways.talk(*[usual] * 40)
    assert statuses(said) == [200] * 40
    assert count >= 20  # they are tried again after a while


def test_an_idle_connection_is_closed_and_a_straight_answer_keeps_it(ways):
    """Its timer is not set anew with every answer."""

    async def idle(way):
        loop = asyncio.get_running_loop()
        transport, client = await loop.create_connection(Client, "127.0.0.1", way.port)
        started = loop.time()
        for _ in range(4):
            transport.write(infer())
            await asyncio.sleep(0.1)
        assert not client.closed
        while not client.closed:
            await asyncio.sleep(0.005)
            assert loop.time() < started + 5
        return loop.time() - started

    for way in ways.both:
        way.config.timeout_keep_alive = 0.25
        assert 0.5 < ways.runner.run(idle(way)) < 0.8
        way.config.timeout_keep_alive = 75


def test_overload_and_deadlines_are_the_same(ways):
    usual, late = infer(), topk(timeout=1e-6)
    ways.talk(usual, late)
    said, straight = ways.talk(usual, late, late)
    assert (statuses(said), straight) == ([200, 504, 504], 2)
    for way in ways.both:
        way.service.admission.most_rows = 0
    said, straight = ways.talk(usual, usual, usual)
    for way in ways.both:
        way.service.admission.most_rows = way.settings.queue_rows
    assert (statuses(said), straight) == ([429] * 3, 2)
    assert said.count(b"retry-after: 1\r\n") == 3


def test_a_server_that_stops_hangs_up_after_its_answer(ways):
    ways.talk(infer())
    for way in ways.both:
        way.service.closing = True
    said, straight = ways.talk(infer(), infer())
    for way in ways.both:
        way.service.closing = False
    assert (statuses(said), straight) == ([200], 0)
    assert said.endswith(b"<closed>")


def test_a_model_that_is_loaded_again_or_unloaded(ways):
    usual = infer(model="dense", id="again")
    load, unload = (post(f"/v2/repository/models/dense/{what}", b"") for what in ("load", "unload"))
    said, _ = ways.talk(usual, usual, unload, usual, usual, load, usual, usual)
    assert statuses(said) == [200, 200, 200, 503, 503, 200, 200, 200]
