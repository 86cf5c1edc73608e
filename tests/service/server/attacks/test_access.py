"""Who may do what with a real server: pages of other sites, missing and revoked keys, clients that hang up."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import time

import httpx
import pytest
import shortlist

from tests.support.layers import RunningServer, make_contexts
from tests.support.servers.fast_path import infer
from tests.support.servers.responses import read_refusal

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=3, seed=5).contexts
UNLOAD = "/v2/repository/models/lm/unload"
LOAD = "/v2/repository/models/lm/load"
OLD, NEW, WATCHER = "old-key-of-the-decoder", "new-key-of-the-decoder", "key-of-prometheus-alone"
LOADS = 40


def read_metric(server, name, **headers):
    text = server.http.get("/metrics", headers=headers).text
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)[1])


@pytest.fixture(scope="module")
def controlled(small_repository):
    """A server on a loopback address, without keys, that loads and unloads by request."""
    with RunningServer(small_repository, "--model-control", "explicit") as server:
        yield server


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},  # a name of its own that was bound to 127.0.0.1
        {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:3000"},  # another program's page on this machine
        {"Origin": "http://evil.example", "Content-Type": "text/plain"},  # which needs no preflight
    ],
)
@pytest.mark.parametrize("path", [UNLOAD, "/v1/topk", "/v2/models/lm/infer", "/v2/logging", "/healthz", "/nothing"])
def test_a_page_of_another_site_gets_nowhere(controlled, path, headers):
    before = read_metric(
        controlled, f'shortlist_refusals_total{{reason="{"host" if "Host" in headers else "origin"}"}}'
    )
    sentence = read_refusal(controlled.http.post(path, content=b"{}", headers=headers), 403)
    assert "--allowed-hosts" in sentence
    assert controlled.http.get("/v1/models/lm").json()["state"] == "ready"
    reason = "host" if "Host" in headers else "origin"
    assert read_metric(controlled, f'shortlist_refusals_total{{reason="{reason}"}}') == before + 1


def test_a_head_that_was_refused_is_refused_again_and_one_that_was_served_stays_its_own(controlled):
    """The fast path knows heads byte for byte: none with another host is among them."""
    host, port = controlled.url.removeprefix("http://").split(":")
    good = infer()
    evil = good.replace(b"Host: localhost", b"Host: evil.test")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        statuses = []
        for request in (good, good, good, evil, evil, good, evil):
            connection.sendall(request)
            response = http.client.HTTPResponse(connection)
            response.begin()
            response.read()
            statuses.append(response.status)
    assert statuses == [200, 200, 200, 403, 403, 200, 403]


def test_by_default_nobody_loads_or_unloads(small_server):
    for path in (LOAD, UNLOAD):
        assert "--model-control explicit" in read_refusal(small_server.http.post(path), 403)
    for name in ("../../etc", "..%2f..%2fetc", "%2fetc%2fpasswd", "http:%2f%2fevil.example%2fmodel"):
        response = small_server.http.post(f"/v2/repository/models/{name}/load")
        assert response.status_code in (403, 404)


def test_a_model_is_loaded_from_nowhere_else(controlled):
    """Neither from a folder outside of the repository nor from a URL."""
    for name in ("..", "%2e%2e", "..%2f..%2fetc", "http:%2f%2f127.0.0.1:1%2fmodel", "lm%0d%0aX", "lm%00"):
        assert controlled.http.post(f"/v2/repository/models/{name}/load").status_code == 404
    body = {"parameters": {"config": "{}", "file:1/model.onnx": "AAAA"}}
    read_refusal(controlled.http.post(LOAD, json=body), 400)


def test_a_server_that_answers_for_no_model_is_not_ready(small_repository):
    with RunningServer(small_repository, "--model-control", "explicit") as server:
        server.http.post(UNLOAD)
        assert server.http.get("/readyz").status_code == 200, "dense answers"
        server.http.post("/v2/repository/models/dense/unload")
        for path in ("/readyz", "/v2/health/ready"):
            assert "no model answers" in read_refusal(server.http.get(path), 503)
        assert read_metric(server, "shortlist_ready") == 0
        server.http.post(LOAD)
        assert server.http.get("/readyz").status_code == 200


def test_loads_of_clients_that_hung_up_are_not_done(small_repository):
    with RunningServer(small_repository, "--model-control", "explicit") as server:
        host, port = server.url.removeprefix("http://").split(":")
        for _ in range(LOADS):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(f"POST {LOAD} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        assert server.http.post(LOAD).status_code == 200, "whoever waits gets what was asked for"
        loads = sum("model 'lm' version 1 is ready" in line for line in server.log)
    assert loads < LOADS / 2


@pytest.fixture
def keys(tmp_path):
    """A file of keys, and how to write another content."""
    path = tmp_path / "keys"

    def write(secret):
        path.write_text(f"decoder ask {secret}\nprometheus observe {WATCHER}\n")
        return path

    write(OLD)
    return write


def ask(connection, secret):
    """One question over a connection that stays open; its status."""
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    content = json.dumps({"model": "lm", "contexts": ROWS[:1].tolist(), "k": 2})
    connection.request("POST", "/v1/topk", content, headers)
    response = connection.getresponse()
    response.read()
    return response.status


def wait_for_line(server, words):
    for _ in range(200):
        if any(words in line for line in server.log):
            return
        time.sleep(0.02)
    raise AssertionError("".join(server.log))


def test_keys_hold_on_every_way_and_are_read_again_on_sighup(small_repository, keys):
    with RunningServer(small_repository, "--api-keys-file", str(keys(OLD))) as server:
        connection = http.client.HTTPConnection(*server.url.removeprefix("http://").split(":"), timeout=30)
        assert [ask(connection, None) for _ in range(3)] == [401] * 3
        assert [ask(connection, NEW) for _ in range(3)] == [401] * 3
        assert [ask(connection, WATCHER) for _ in range(3)] == [403] * 3
        assert [ask(connection, OLD) for _ in range(40)] == [200] * 40, "the fast path has learned it by now"
        assert [ask(connection, secret) for secret in (NEW, OLD, WATCHER, OLD, None)] == [401, 200, 403, 200, 401]
        # another file: the connection stays, the key does not
        keys(NEW)
        server.process.send_signal(signal.SIGHUP)
        wait_for_line(server, "the API keys: read again")
        assert [ask(connection, OLD) for _ in range(3)] == [401] * 3
        assert [ask(connection, NEW) for _ in range(40)] == [200] * 40
        # a file that is wrong changes nothing
        keys("short")
        server.process.send_signal(signal.SIGHUP)
        wait_for_line(server, "what was in force stays")
        assert [ask(connection, secret) for secret in (NEW, OLD)] == [200, 401]
        connection.close()
        refused = server.http.get("/metrics", headers={"Authorization": f"Bearer {WATCHER}"}).text
        assert 'shortlist_refusals_total{reason="key"} 12.0' in refused
        assert 'shortlist_refusals_total{reason="role"} 4.0' in refused
        assert 'code="401"' in refused
        assert not any(secret in "".join(server.log) for secret in (OLD, NEW, WATCHER))
        assert server.process.poll() is None


def test_clients_send_their_key(small_repository, monkeypatch):
    variables = {"SHORTLIST_API_KEYS": f"decoder ask {OLD}; prometheus observe {WATCHER}"}
    with RunningServer(small_repository, variables=variables) as server:
        with shortlist.Client(server.url) as client:
            with pytest.raises(shortlist.errors.Unauthorized, match="wants an API key"):
                client.topk("lm", ROWS, 2)
            assert client.ready()
        with shortlist.Client(server.url, api_key=WATCHER) as client:
            with pytest.raises(shortlist.errors.Forbidden, match="'prometheus' may not do this: it wants the role ask"):
                client.topk("lm", ROWS, 2)
            assert {model["name"] for model in client.models()} == {"lm", "dense"}
        with shortlist.Client(server.url, api_key=OLD) as client:
            assert client.topk("lm", ROWS, 2).ids.shape == (3, 2)
        monkeypatch.setenv("SHORTLIST_API_KEY", OLD)
        with shortlist.Client(server.url) as client:
            assert client.logprobs("lm", ROWS, [1, 2]).shape == (3, 2)


def test_a_server_for_other_machines_is_not_administered_without_a_key(small_repository):
    with RunningServer(small_repository, "--host", "0.0.0.0", "--model-control", "explicit") as server:
        port = server.url.rpartition(":")[2]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as http_client:
            for path in (LOAD, UNLOAD, "/v2/logging", "/v2/trace/setting"):
                assert "--api-keys-file" in read_refusal(http_client.post(path, content=b'{"log_error": false}'), 403)
            assert http_client.get("/v1/models/lm").json()["state"] == "ready"
        assert any("whoever reaches 0.0.0.0 may ask" in line for line in server.log)
