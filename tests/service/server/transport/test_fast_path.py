"""The fast path sends and counts what uvicorn's own way does, byte for byte, over real sockets."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.layers import CLASSES, DIM
from tests.support.servers.fast_path import (
    ROWS,
    infer,
    post,
    statuses,
    topk,
)

pytestmark = pytest.mark.slow

INFER = "/v2/models/lm/infer"


@pytest.mark.parametrize("ask", [infer, topk])
def test_requests_whose_head_is_known_take_the_fast_path(servers, ask):
    servers.talk(ask())
    responses, fast = servers.talk(*[ask() for _ in range(6)])
    assert statuses(responses) == [200] * 6
    assert fast == 6
    assert responses.endswith(b"<open>")


def test_the_fast_path_answers_in_a_crowd_too(servers, monkeypatch):
    monkeypatch.setattr("shortlist.server.transport.connection_limits.POLLED_AT_ONCE", 1)
    servers.warm(infer())
    responses, fast = servers.talk(*[infer() for _ in range(6)])
    assert (statuses(responses), fast) == ([200] * 6, 6)
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
    servers.warm(infer(k=4))
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
    servers.warm(usual)
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
    for turn in range(3):
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
