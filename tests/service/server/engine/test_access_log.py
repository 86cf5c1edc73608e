"""The access log of a real server: a line for every request, with what it was called, and nothing that it held."""

from __future__ import annotations

import json
import time

import pytest

from tests.support.layers import RunningServer, make_contexts

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=5).contexts.tolist()
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
IDS = {"X-Request-Id": "req-7", "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
NO_IDS = {"request_id": "-", "trace_id": "-"}
BOTH = {"request_id": "req-7", "trace_id": TRACE}
SECONDS = 10.0  # until a line is there


@pytest.fixture(scope="module")
def server(small_repository, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("alice ask,observe secret-of-alice-0123456789\n")
    flags = ("--access-log", "--log-format", "json", "--threads", "1", "--api-keys-file", str(keys))
    with RunningServer(small_repository, *flags, headers={"Authorization": "Bearer secret-of-alice-0123456789"}) as own:
        yield own


def list_lines(server):
    lines = [json.loads(line) for line in server.log if line.startswith("{")]
    return [line for line in lines if line["name"] == "shortlist.access" and line["request"] != "GET /readyz"]


def ask(server, call, count=1):
    """The lines that so many calls bring, and the last response."""
    before = len(list_lines(server))
    response = [call() for _ in range(count)][-1]
    end = time.monotonic() + SECONDS
    while len(list_lines(server)) < before + count:
        assert time.monotonic() < end, server.log[-5:]
        time.sleep(0.01)
    return list_lines(server)[before:], response


def post(server, headers=None, **fields):
    body = {"model": "lm", "contexts": ROWS[:1], "k": 2} | fields
    return lambda: server.http.post("/v1/topk", json=body, headers=headers)


@pytest.mark.parametrize(("headers", "ids"), [({}, NO_IDS), (IDS, BOTH)])
def test_requests_on_either_path(server, headers, ids):
    """The first of them goes uvicorn's way, later ones the fast one; ids are each request's own."""
    lines, response = ask(server, post(server, headers), count=12)
    assert response.status_code == 200
    for line in lines:
        assert (line["client"], line["request"], line["status"]) == ("key alice", "topk lm/1", 200)
        assert {name: line[name] for name in ids} == ids
        assert line["ms"] >= line["compute_ms"] >= 0
        assert line["decode_ms"] > 0
    others, _ = ask(server, post(server, {"X-Request-Id": "another"}))
    assert others[0]["request_id"] == "another"
    lines, _ = ask(server, post(server))
    assert {name: lines[0][name] for name in NO_IDS} == NO_IDS


def test_errors_say_what_the_request_was_called(server):
    for count in (1, 3):
        lines, response = ask(server, post(server, IDS, k=0), count)
        assert response.status_code == 400
        assert response.headers["x-request-id"] == "req-7"
        assert [(line["status"], line["request_id"]) for line in lines] == [(400, "req-7")] * count
    (line,), response = ask(server, post(server, model="nope"))
    assert line["request"] == "topk -"
    assert line["status"] == 404
    assert "x-request-id" not in response.headers
    for path, status in (("/nothing", 404), ("/v1/topk", 405)):  # which are no route's errors
        _, response = ask(server, lambda path=path: server.http.get(path, headers=IDS))
        assert (response.status_code, response.headers["x-request-id"]) == (status, "req-7")


def test_other_routes_and_refusals(server):
    (line,), _ = ask(server, lambda: server.http.get("/v1/models", headers=IDS))
    assert (line["client"], line["request"], line["status"]) == ("key alice", "GET /v1/models", 200)
    assert line["trace_id"] == TRACE
    (line,), response = ask(server, lambda: server.http.get("/healthz", headers={"Origin": "http://evil.example"}))
    assert response.status_code == 403
    assert line["status"] == 403
    (line,), response = ask(server, lambda: server.http.get("/v1/none%0aforged"))
    assert line["status"] == 404
    assert "\n" not in line["request"]
    (line,), response = ask(
        server, lambda: server.http.post("/v1/topk", json={}, headers={"Authorization": "Bearer x"})
    )
    assert response.status_code == 401
    assert line["client"] == "127.0.0.1"


def test_no_line_holds_contexts_or_keys(server):
    ask(server, post(server))
    text = "".join(server.log)
    assert "secret-of-alice" not in text
    assert str(ROWS[0][0])[:8] not in text


def test_it_is_off_by_default(small_server):
    post(small_server)()
    small_server.http.get("/v1/models")
    time.sleep(0.2)
    assert not any("shortlist.access" in line for line in small_server.log)
