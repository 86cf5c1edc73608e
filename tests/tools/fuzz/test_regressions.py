"""What fuzzing found, each as small as it can be."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time

import httpx
import orjson
import pytest

from tests.support.layers import RunningServer
from tools.fuzz import acts, tcp

pytestmark = pytest.mark.slow

DEEP = b"[" * 1000 + b"]" * 1000
NO_ROWS = b'{"name":"context","datatype":"FP32","shape":[0,16],"data":[]}'
INFER = "/v2/models/lm/infer"
PATIENCE = 1  # seconds for a body
LISTS = b'{"inputs":[' + b"[]," * 5_000_000 + b"[]]}"  # 15 MB; 15 KB when compressed


@pytest.fixture(scope="module")
def server(small_repository):
    with RunningServer(small_repository, "--body-timeout", str(PATIENCE)) as server:
        yield server


def connect(server: RunningServer) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), 5 * PATIENCE + 5)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (INFER, b'{"inputs":[%b],"parameters":{"k":%b}}' % (NO_ROWS, DEEP)),
        (INFER, b'{"inputs":[],"outputs":[{"name":%b}]}' % DEEP),
        (INFER, b'{"inputs":[],"parameters":{"binary_data_output":{"a":%b}}}' % DEEP),
        ("/v1/topk", b'{"model":"lm","contexts":[],"k":%b}' % DEEP),
        ("/v2/logging", b'{"log_verbose_level":%b}' % DEEP),
    ],
)
def test_a_deep_value_is_refused(server, path, body):
    """To print it for the sentence raised RecursionError, which was answered 500."""
    answer = server.http.post(path, content=body)
    assert answer.status_code == 400
    assert len(answer.json()["error"]) < 400


def test_a_head_without_end_is_cut(server):
    """uvicorn kept it all, as it kept a path or trailers: 64 MiB of short headers took 1.2 GiB."""
    assert tcp.send_endless_heads(server, 0).wrong == []


def test_a_long_head_is_refused_with_a_sentence(server):
    with connect(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 1_000_000)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 431 ")


def read_all(connection: socket.socket) -> bytes:
    """All until the end, or a reset after it."""
    content = b""
    with contextlib.suppress(OSError):
        while part := connection.recv(65_536):
            content += part
    return content


def test_half_a_head_is_given_up(server):
    """Connections that never finish a head stayed for ever, until no file could be opened."""
    for before in (b"", acts.HEALTH_REQUEST):
        with connect(server) as connection:
            connection.sendall(before)
            content = connection.recv(65_536) if before else b""
            connection.sendall(b"GET /healthz HTTP/1.1\r\nX: ")
            start = time.monotonic()
            read_all(connection)
            assert time.monotonic() - start < 5 * PATIENCE, content


def test_garbage_after_a_correct_request_leaves_no_traceback(server):
    """The connection was closed while the request was computed, and its answer raised RuntimeError."""
    for _ in range(20):
        with connect(server) as connection:
            connection.sendall(acts.VALID_REQUEST * 3 + b"\0garbage")
            read_all(connection)
    assert tcp.find_failures(server.log) == []


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_millions_of_lists_do_not_hold_up_others(server, encoding):
    """orjson held the interpreter for more than two seconds; 15 KB of gzip did it in the event loop."""
    content = gzip.compress(LISTS) if encoding == "gzip" else LISTS
    slowest, stop = [0.0], threading.Event()
    neighbour = threading.Thread(target=watch, args=(server.url, slowest, stop))
    neighbour.start()
    answer = server.http.post(INFER, content=content, headers={"Content-Encoding": encoding})
    stop.set()
    neighbour.join()
    assert answer.status_code == 413, "so many values take more memory than --json-limit"
    assert slowest[0] < 1


def watch(url: str, slowest: list[float], stop: threading.Event) -> None:
    """Keep asking for readiness; `slowest` becomes the longest wait, in seconds."""
    with httpx.Client(base_url=url, timeout=30) as http:
        while not stop.wait(0.01):
            start = time.perf_counter()
            http.get("/healthz")
            slowest[0] = max(slowest[0], time.perf_counter() - start)


def test_the_document_names_what_is_not_json(server):
    paths = orjson.loads(server.http.get("/openapi.json").content)["paths"]
    assert list(paths["/metrics"]["get"]["responses"]["200"]["content"]) == ["text/plain"]
    for path in (
        "/v2/repository/models/{name}/load",
        "/v2/repository/models/{name}/unload",
        "/v2/systemsharedmemory/region/{region}/register",
        "/v2/systemsharedmemory/region/{region}/unregister",
        "/v2/systemsharedmemory/unregister",
    ):
        assert "content" not in paths[path]["post"]["responses"]["200"], path
