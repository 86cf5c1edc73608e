"""What other inference servers were attacked by: each test names the published weakness."""

from __future__ import annotations

import json
import threading
from urllib.parse import quote

import pytest

from tests.support.servers.responses import read_refusal

from .wire import INFER, MIB, ROWS, connect, forget_peak, read_memory, read_response, request

pytestmark = pytest.mark.slow

CHUNKS = 3 * MIB // 6
PATHS = (
    INFER,
    "/v1/topk",
    "/v1/score",
    "/v2/repository/index",
    "/v2/repository/models/lm/load",
    "/v2/logging",
    "/v2/trace/setting",
    "/v1/nothing",
)


@pytest.mark.parametrize("path", PATHS)
def test_millions_of_tiny_chunks(server, path):
    """CVE-2025-23310, CVE-2025-23311: memory for each chunk of a body."""
    before = forget_peak(server)
    with connect(server) as connection:
        content = request(path, b"", "Transfer-Encoding: chunked") + b"1\r\n \r\n" * CHUNKS + b"0\r\n\r\n"
        threading.Thread(target=send_quietly, args=(connection, content), daemon=True).start()
        status, _ = read_response(connection)
    assert status in (400, 403, 404, 408, 413)  # 403: loading is switched off
    assert read_memory(server, "VmHWM") - before < 32 * MIB


def send_quietly(connection, content):
    try:
        connection.sendall(content)
    except OSError:
        return


def tensor(**fields):
    return {"name": "context", "shape": [1, 16], "datatype": "FP32", "data": ROWS[0].tolist()} | fields


def infer(server, **fields):
    return server.http.post(INFER, content=json.dumps({"inputs": [tensor()]} | fields))


def test_very_many_outputs(server):
    """CVE-2025-33201, CVE-2026-24146: outputs without bound."""
    before = forget_peak(server)
    for outputs in ([{"name": "ids"}] * 10_000, [{"name": f"ids{number}"} for number in range(10_000)]):
        read_refusal(infer(server, outputs=outputs))
    read_refusal(infer(server, outputs=[{"name": "logprobs", "parameters": {"classification": 2**31}}]), 413)
    assert read_memory(server, "VmHWM") - before < 32 * MIB


SHAPES = [
    [2**60, 16],
    [2**4, 2**60 + 2],
    [2**63, 2],
    [2**64, 16],
    [-1, 16],
    [1, -16],
    [0, 2**62],
    [1] * 1000 + [16],
    [],
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: str(shape)[:30])
def test_shapes_whose_product_overflows(server, shape):
    """CVE-2026-24173: sizes that wrap around."""
    read_refusal(infer(server, inputs=[tensor(shape=shape)]))
    binary = tensor(shape=shape, parameters={"binary_data_size": 64})
    del binary["data"]
    text = json.dumps({"inputs": [binary]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    read_refusal(server.http.post(INFER, content=text + ROWS[0].tobytes(), headers=headers))


@pytest.mark.parametrize("size", [-1, 2**31, 2**63, 2**64, 63, 65, "64", 64.0, None])
def test_sizes_of_binary_data_that_are_lies(server, size):
    """The same, of the bytes of a tensor."""
    text = json.dumps({"inputs": [tensor(data=None, parameters={"binary_data_size": size})]}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    read_refusal(server.http.post(INFER, content=text + ROWS[0].tobytes(), headers=headers))


@pytest.mark.parametrize(
    "name", ["../lm", "..", "../../etc/passwd", "lm/../dense", "/etc", "lm\x00", "lm\n", ".", "a" * 5000]
)
@pytest.mark.parametrize("action", ["load", "unload"])
def test_names_that_leave_the_repository(server, name, action):
    """CVE-2023-31036, CVE-2026-24208: paths in the names of models to load."""
    path = f"/v2/repository/models/{quote(name, safe='')}/{action}"
    response = server.http.post(path)
    assert response.status_code in (403, 404)
    read_refusal(response, response.status_code)


@pytest.mark.parametrize("depth", [120, 250_000])
@pytest.mark.parametrize("path", [INFER, "/v1/topk"])
def test_json_nested_without_end(server, path, depth):
    """CVE-2024-27454: recursion in the JSON parser."""
    for opening in (b"[", b'{"a":'):
        read_refusal(server.http.post(path, content=opening * depth))


def test_one_long_list_of_ids_among_many_short_ones(server):
    """A list for each row, as wide as the widest: memory that is the product of two lengths."""
    before = forget_peak(server)
    rows = 4096
    allow = [[0] * 200_000] + [[]] * (rows - 1)
    body = json.dumps({"model": "lm", "contexts": [[0.5] * 16] * rows, "k": 1, "allow": allow}).encode()
    read_refusal(server.http.post("/v1/topk", content=body))
    assert read_memory(server, "VmHWM") - before < 96 * MIB
