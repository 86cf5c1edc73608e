"""Each attacker sends what its name says, to a real server, and gets what it should."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest
from shortlist.head import load

from benchmarks.http.client.connection import HEAD_END, Address
from benchmarks.http.soak import attackers
from benchmarks.http.soak.attackers import ATTACKS, BOMB_BYTES, make_bomb, make_large_request
from benchmarks.http.soak.expected_responses import mix_requests
from benchmarks.http.soak.faulty_clients import commit_fault
from tests.support.layers import RunningServer, make_contexts

EXPECTED = {
    "reads none of its large answers": "cut off",
    "asks for another protocol": "answered 200",
    "sends thousands of requests at once": "all answered",
    "sends kilobytes of gzip that become megabytes": "answered 413, answered 400",
}


@pytest.fixture(scope="module")
def server(small_repository):
    with RunningServer(small_repository, "--body-timeout", "1") as running:
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_what_each_gets_of_an_idle_server(server, small_repository, monkeypatch, name):
    monkeypatch.setattr(attackers, "UNREAD_K", 300)
    head = load(Path(small_repository, "lm", "1"), threads=1)
    host, port = server.url.removeprefix("http://").split(":")
    [request] = mix_requests(head, make_contexts(8).contexts, 1, 10_000_000, host)
    outcome = commit_fault(ATTACKS[name], "127.0.0.2", Address(host, int(port)), request.with_timeout, 60.0)
    assert asyncio.run(outcome) == EXPECTED[name]


@pytest.mark.parametrize("size", BOMB_BYTES)
def test_bombs_are_small_and_become_large(size):
    bomb = make_bomb(size)
    content = gzip.decompress(bomb)
    assert len(bomb) < 64 << 10
    assert size - 100 < len(content) <= size + 100
    assert json.loads(content)["inputs"][:2] == ["ab", "ab"]


def test_large_requests_name_the_model_and_its_width():
    text = json.dumps({"inputs": [{"name": "context", "shape": [3, 7]}]}).encode()
    head = f"POST /v2/models/lm/infer HTTP/1.1\r\nInference-Header-Content-Length: {len(text)}".encode()
    line, _, body = make_large_request(head + HEAD_END + text + bytes(84)).partition(HEAD_END)
    assert line.startswith(b"POST /v2/models/lm/infer HTTP/1.1")
    [entry] = json.loads(body)["inputs"]
    assert (entry["shape"], len(entry["data"])) == ([attackers.UNREAD_ROWS, 7], attackers.UNREAD_ROWS * 7)
