"""Every route that takes a body reads it alike: in these encodings, within these limits, large JSON in turns."""

from __future__ import annotations

import gzip
import json
import logging
import re
import zlib
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from shortlist.server.app import create_app
from shortlist.server.scheduling.turns import Turns
from shortlist.server.settings import Settings
from shortlist.wire.open_inference import describe_tensor

from tests.support.layers import CLASSES, copy_writable
from tests.support.servers.gateway import LENGTH, Pair
from tests.support.servers.responses import read_refusal

JSON_LIMIT = 100_000  # bytes
SMALL_LIMIT = 65_536  # bytes, of what operators ask
BODY_METHODS = ("post", "put", "patch")
WITHOUT_BODY = {"/v2/systemsharedmemory/unregister", "/v2/systemsharedmemory/region/{region}/unregister"}
PARAMETERS = {"name": "lm", "version": "1"}  # of paths; all others are x
WRONG = b'{"parameters": 1, "ready": 1, "key": 1}'  # JSON that every route refuses
LARGE = b'{"parameters": [' + b" " * JSON_LIMIT + b"]}"
COMPRESS = {"gzip": gzip.compress, "deflate": zlib.compress, "GZIP": gzip.compress, "identity": bytes}


def list_routes():
    """Method and path of every route of the app that takes a body."""
    with TemporaryDirectory() as root:
        paths = create_app(Settings(repository=root, model_control="poll")).openapi()["paths"]
    routes = [(method, path) for path in paths for method in paths[path] if method in BODY_METHODS]
    return [
        (method.upper(), re.sub(r"{(\w+)}", lambda name: PARAMETERS.get(name[1], "x"), path))
        for method, path in routes
        if path not in WITHOUT_BODY
    ]


ROUTES = list_routes()
every_route = pytest.mark.parametrize(("method", "path"), ROUTES)


@pytest.fixture(scope="module")
def pair(small_repository, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bodies")
    settings = {"json_limit": JSON_LIMIT, "body_limit": 1 << 20, "shared_memory": True, "model_control": "explicit"}
    repository = copy_writable(small_repository, folder / "repository")
    gateways = Pair(repository, item_changes=folder / "items", **settings)
    yield gateways
    gateways.close()


def test_the_routes_are_found():
    assert {("PUT", "/v1/lists/lm"), ("POST", "/v1/topk"), ("POST", "/v2/repository/index")} <= set(ROUTES)
    assert len(ROUTES) >= 15


@every_route
def test_json_over_the_limit_is_413(pair, method, path):
    for headers in ({}, {LENGTH: str(len(LARGE))}, {LENGTH: "x"}):
        sentence = read_refusal(pair.both(path, LARGE, headers, method), 413)
        assert re.search(f"over the limit of ({JSON_LIMIT}|{SMALL_LIMIT})( bytes)?: send", sentence)


@every_route
@pytest.mark.parametrize("encoding", COMPRESS)
def test_compressed_bodies_are_read(pair, method, path, encoding):
    plain = pair.both(path, WRONG, method=method)
    assert "JSON" not in read_refusal(plain, 400)
    response = pair.both(path, COMPRESS[encoding](WRONG), {"Content-Encoding": encoding}, method)
    assert (response.status_code, response.content) == (400, plain.content)


@every_route
def test_compressed_json_over_the_limit_is_413(pair, method, path):
    response = pair.both(path, gzip.compress(LARGE), {"Content-Encoding": "gzip"}, method)
    assert re.search(f"over the limit of ({JSON_LIMIT}|{SMALL_LIMIT}) bytes when decomp", read_refusal(response, 413))


@every_route
def test_other_encodings_are_415(pair, method, path):
    response = pair.both(path, WRONG, {"Content-Encoding": "br"}, method)
    assert "'br' is not served" in read_refusal(response, 415)
    assert response.headers["accept-encoding"] == "gzip, deflate"
    assert "not gzip" in read_refusal(pair.both(path, WRONG, {"Content-Encoding": "gzip"}, method), 400)


@every_route
@pytest.mark.parametrize("way", [0, 1])
def test_a_client_that_leaves_is_no_error_of_the_server(pair, caplog, method, path, way):
    messages = []

    async def send(message):
        messages.append(message)

    app = pair.clients[way]._transport.app
    with caplog.at_level(logging.INFO):
        pair.runner.run(app(make_scope(method, path), leave_after(b'{"ready"'), send))
    assert messages[0]["status"] in (400, 499)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info] == []


def make_scope(method, path):
    """The scope of a request whose body is longer than what comes of it."""
    addresses = {"client": None, "server": ("localhost", 80), "scheme": "http", "http_version": "1.1"}
    headers = [(b"host", b"localhost"), (b"content-length", b"1000")]
    paths = {"path": path, "raw_path": path.encode(), "query_string": b"", "root_path": ""}
    return {"type": "http", "method": method, "headers": headers, **addresses, **paths}


def leave_after(content):
    """What an app receives of a client that sends so much of a body and leaves."""
    messages = iter([{"type": "http.request", "body": content, "more_body": True}])

    async def receive():
        return next(messages, {"type": "http.disconnect"})

    return receive


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("PUT", "/v1/lists/x"),
        ("PUT", "/v1/models/lm/sets/x"),
        ("PUT", "/v1/models/lm/items"),
        ("POST", "/v1/models/lm/recall"),
        ("POST", "/v1/topk"),
    ],
)
def test_much_json_is_parsed_in_turns(pair, monkeypatch, method, path):
    nobody_waits = Turns(0)
    nobody_waits.busy = True
    monkeypatch.setattr(pair.service, "decode_turns", nobody_waits)
    assert "too many large bodies" in read_refusal(pair.both(path, LARGE[:90_000], method=method), 429)
    assert read_refusal(pair.both(path, LARGE[:60_000], method=method), 400)


def put_binary(pair, path, **tensors):
    """The answer to tensors as binary data."""
    text = json.dumps({"inputs": [describe_tensor(name, tensors[name], binary=True) for name in tensors]}).encode()
    content = text + b"".join(values.tobytes() for values in tensors.values())
    response = pair.both(path, content, {LENGTH: str(len(text))}, "PUT")
    assert response.status_code == 200, response.text
    return response.json()


def test_binary_data_over_the_limit_of_json_is_taken(pair):
    ids = np.tile(np.arange(CLASSES), 100)
    assert ids.nbytes > 2 * JSON_LIMIT
    offsets = np.arange(0, len(ids) + 1, CLASSES)
    assert put_binary(pair, "/v1/lists/big", ids=ids, offsets=offsets) == {"name": "big", "lists": 100, "ids": len(ids)}
    assert put_binary(pair, "/v1/models/lm/sets/big", ids=ids)["ids"] == len(ids)
