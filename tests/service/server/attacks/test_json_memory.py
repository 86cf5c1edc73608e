"""Little that becomes much: compressed bodies, and JSON that takes many times its size in memory."""

from __future__ import annotations

import gzip
import json
import threading
import zlib

import pytest

from tests.support.layers import RunningServer
from tests.support.servers.responses import read_refusal

from .conftest import TIMERS
from .wire import INFER, MIB, check_neighbour, forget_peak, read_memory

pytestmark = pytest.mark.slow

JSON_LIMIT = 2 * MIB
# Each is of 16 MiB, the most that a body may have, and takes little when it is compressed.
BOMBS = {
    "strings": b'{"inputs": [' + b",".join([b'"ab"'] * (3 << 20)) + b"]}",
    "floats": b'{"inputs": [' + b",".join([b"1e9"] * (4 << 20)) + b"]}",
    "keys": b"{" + b",".join(b'"%06x":1' % number for number in range(15 << 16)) + b"}",
    "spaces": b" " * (16 * MIB),
}


@pytest.mark.parametrize("path", [INFER, "/v1/topk", "/v1/score"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_of_json_is_refused_before_it_is_parsed(server, bomb, path):
    before = forget_peak(server)
    for body, headers in (
        (gzip.compress(BOMBS[bomb][: 16 * MIB]), {"Content-Encoding": "gzip"}),
        (BOMBS[bomb][: 16 * MIB], {}),
    ):
        assert "JSON" in read_refusal(server.http.post(path, content=body, headers=headers), 413)
    assert read_memory(server, "VmHWM") - before < 80 * MIB  # the body twice, as it came and in one piece


def test_the_length_of_the_json_is_no_way_around_its_limit(server):
    """Where it stands in a header, the JSON ends there; /v1 knows no such header."""
    body = BOMBS["strings"][: 3 * MIB]
    header = {"Inference-Header-Content-Length": "20"}
    read_refusal(server.http.post("/v1/topk", content=body, headers=header), 413)
    read_refusal(server.http.post(INFER, content=body, headers=header), 400)
    for length in ("\N{NO-BREAK SPACE}20", "x", "-1", str(3 * MIB), "9" * 25):
        response = server.http.post(
            INFER, content=body, headers={"Inference-Header-Content-Length": length.encode("latin-1")}
        )
        read_refusal(response, 413)


@pytest.fixture
def small_room(small_repository):
    """A server that holds 96 MiB at most, and with them one text at a time."""
    with RunningServer(small_repository, *TIMERS, "--queue-bytes", str(96 * MIB)) as running:
        yield running


@pytest.mark.parametrize("path", [INFER, "/v1/topk"])
def test_texts_by_the_hundred_thousand_are_refused_before_they_are_parsed(server, path):
    """Under the limit of JSON; each would be an object, and all of them a tenth of a second of everybody's time."""
    text = b'{"inputs": [' + b",".join([b'"ab"'] * (JSON_LIMIT // 5 - 100)) + b"]}"
    for body, headers in ((text, {}), (gzip.compress(text), {"Content-Encoding": "gzip"})):
        assert "131072 names and texts" in read_refusal(server.http.post(path, content=body, headers=headers), 400)


def test_as_many_biases_as_fit_are_read(server):
    bias = {str(number): 0.125 for number in range(10_000_000, 10_100_000)}
    body = json.dumps({"model": "lm", "contexts": [[0.5] * 16], "k": 1, "bias": bias}).encode()
    assert JSON_LIMIT * 0.9 < len(body) < JSON_LIMIT
    assert "class" in read_refusal(server.http.post("/v1/topk", content=body), 400)


def test_numbers_under_the_limit_are_parsed_one_at_a_time(small_room):
    """Each takes some 20 MiB while it is parsed; sixteen at a time would take 300."""
    text = b'{"inputs": [' + b",".join([b"1e9"] * (JSON_LIMIT // 4 - 100)) + b"]}"
    body, before = gzip.compress(text), forget_peak(small_room)
    statuses = []

    def ask():
        response = small_room.http.post(INFER, content=body, headers={"Content-Encoding": "gzip"}, timeout=60)
        statuses.append(response.status_code)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        assert small_room.http.get("/healthz").status_code == 200
    for thread in threads:
        thread.join()
    assert set(statuses) <= {400, 429}
    assert 400 in statuses
    assert read_memory(small_room, "VmHWM") - before < 120 * MIB
    check_neighbour(small_room)


def test_large_json_that_means_something_is_answered(server):
    rows = [[0.123456789] * 16] * 4000
    body = json.dumps({"model": "lm", "contexts": rows, "k": 1}).encode()
    assert len(body) > MIB // 2
    for content, headers in ((body, {}), (gzip.compress(body), {"Content-Encoding": "gzip"})):
        response = server.http.post("/v1/topk", content=content, headers=headers)
        assert (response.status_code, len(response.json()["ids"])) == (200, 4000)


def test_compressed_json_of_the_simple_interface(server):
    body = json.dumps({"model": "lm", "contexts": [[0.5] * 16], "k": 1}).encode()
    for encoding, content in (("gzip", gzip.compress(body)), ("deflate", zlib.compress(body))):
        response = server.http.post("/v1/topk", content=content, headers={"Content-Encoding": encoding})
        assert response.status_code == 200, response.text
    response = server.http.post("/v1/topk", content=body, headers={"Content-Encoding": "br"})
    assert read_refusal(response, 415)
    assert response.headers["accept-encoding"] == "gzip, deflate"
