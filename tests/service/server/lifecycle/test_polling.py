"""Real servers that keep up with their repository, and real clients that name versions, aliases or neither."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import time

import numpy as np
import pytest
import shortlist
from shortlist.errors import NotFound

from tests.support.layers import CLASSES, DIM, RunningServer, copy_writable, make_contexts, make_dense, make_head
from tests.support.servers.swaps import list_versions_in_metrics, put_version, wait_for_version

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=200, seed=5).contexts
POLLS = ("--model-control", "poll", "--poll-seconds", "0.1", "--threads", "1")
K = 3
LOAD = "/v2/repository/models/lm/load"
ABANDONED_LOADS = 1000
STOP_SECONDS = 25.0  # under the half minute that Kubernetes gives


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """Two heads that answer differently."""
    return [make_head(tmp_path_factory.mktemp("polls"), make_dense(seed=seed)).folder for seed in range(2)]


@pytest.fixture
def home(bundles, tmp_path):
    """The folder of `lm`, with version 1."""
    (tmp_path / "lm").mkdir()
    put_version(bundles[1], tmp_path / "lm", 1)
    return tmp_path / "lm"


def declare(home, **fields):
    (home / ".new").write_text(json.dumps(fields))
    (home / ".new").rename(home / "model.json")


def wait_until(look, *, seconds=20.0):
    end = time.monotonic() + seconds
    while not (value := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
    return value


def describe(server):
    return server.http.get("/v1/models/lm").json()


def test_stable_canary_and_a_share_of_the_traffic(bundles, home):
    put_version(bundles[0], home, 2)
    declare(home, aliases={"stable": {"version": 1}, "canary": {"version": 2, "share": 0.25}})
    heads = {version: shortlist.load(bundles[version % 2], threads=1).topk(ROWS, K).ids for version in (1, 2)}
    with RunningServer(home.parent, *POLLS) as server, shortlist.Client(server.url) as client:
        for name, version in (("lm@stable", 1), ("lm@canary", 2)):
            np.testing.assert_array_equal(client.topk(name, ROWS, K).ids, heads[version])
            assert server.http.get(f"/v2/models/{name}").json()["versions"] == ["1", "2"]
            assert server.http.get(f"/v2/models/{name}/ready").status_code == 200
            answer = server.http.post("/v1/topk", json={"model": name, "contexts": ROWS[:1].tolist(), "k": K}).json()
            assert (answer["model"], answer["version"]) == ("lm", version)
        first, again = ([client.topk("lm", row[None], K).ids[0] for row in ROWS] for _ in range(2))
        np.testing.assert_array_equal(first, again)
        canaries = sum((ids == heads[2][row]).all() for row, ids in enumerate(first))
        assert all((ids == heads[1][row]).all() or (ids == heads[2][row]).all() for row, ids in enumerate(first))
        assert 0.15 < canaries / len(ROWS) < 0.35
        aliases = describe(server)["aliases"]
        assert aliases == {
            "canary": {"version": 2, "share": 0.25, "answers": 2},
            "stable": {"version": 1, "share": 0.0, "answers": 1},
        }
        with pytest.raises(NotFound, match="no alias 'newest'"):
            client.topk("lm@newest", ROWS[:1], K)
        with pytest.raises(shortlist.errors.BadInput, match="give one of them"):
            client.topk("lm@stable", ROWS[:1], K, version=1)
        declare(home, latest=1, aliases={"stable": {"version": 2}})
        wait_until(lambda: describe(server)["version"] == 2)
        np.testing.assert_array_equal(client.topk("lm", ROWS, K).ids, heads[2])
        wait_until(lambda: [version["version"] for version in describe(server)["versions"]] == [2])
        wait_until(lambda: list_versions_in_metrics(server) == {2})


def test_what_is_wrong_with_a_model_is_said_once_and_shown(bundles, home):
    with RunningServer(home.parent, *POLLS, "--arrival-seconds", "0.3") as server:
        (home / ".new").write_text("{")
        (home / ".new").rename(home / "model.json")  # a poll would find an empty file wrong, and then this one
        assert "model.json" in wait_until(lambda: describe(server)["declaration_error"])
        time.sleep(0.5)
        assert sum("model.json" in line for line in server.log) == 1
        (home / "model.json").unlink()
        wait_until(lambda: describe(server)["declaration_error"] is None)
        (home / "2").mkdir()
        wait_until(lambda: [version["state"] for version in describe(server)["versions"]] == ["ready", "failed"])
        time.sleep(0.5)
        assert sum("version 2 failed" in line for line in server.log) == 1
        assert server.http.get("/readyz").status_code == 200
        text = server.http.get("/metrics").text
        assert 'shortlist_loads_total{outcome="failed"} 1.0' in text
        assert 'shortlist_loads_total{outcome="ready"} 1.0' in text
        refusal = server.http.post(LOAD)
        assert refusal.status_code == 403
        assert "--model-control explicit" in refusal.json()["error"]


def test_an_empty_repository_is_waited_for(bundles, tmp_path):
    with RunningServer(tmp_path, *POLLS, wait=False) as server:
        assert server.http.get("/readyz").status_code == 503
        (tmp_path / "lm").mkdir()
        put_version(bundles[0], tmp_path / "lm", 7)
        server.wait_ready()
        wait_for_version(server, 7)


@pytest.mark.parametrize("control", ["none", "explicit", "poll"])
def test_sighup_looks_at_the_repository_again(bundles, home, control):
    with RunningServer(home.parent, "--model-control", control, "--poll-seconds", "3600", "--threads", "1") as server:
        put_version(bundles[0], home, 2)
        server.process.send_signal(signal.SIGHUP)
        wait_for_version(server, 2)


@pytest.mark.parametrize("flags", [(), ("--exit-on-load-error",)])
def test_a_server_ends_at_a_load_error_where_that_is_wanted(bundles, home, flags):
    bad = copy_writable(bundles[0], home / "2")
    (bad / "manifest.json").write_text("{}")
    with RunningServer(home.parent, "--threads", "1", *flags, wait=False) as server:
        if flags:
            assert server.process.wait(timeout=30) == 1
            server.reader.join(timeout=10)
            assert any("version 2 failed" in line for line in server.log)
        else:
            server.wait_ready()


def test_a_thousand_loads_that_nobody_waits_for(bundles, home):
    """Each was done in its turn, for minutes; now those of clients that hang up are dropped."""
    with RunningServer(home.parent, "--model-control", "explicit", "--threads", "1") as server:
        host, port = server.url.removeprefix("http://").split(":")
        request = f"POST {LOAD} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode()
        for _ in range(ABANDONED_LOADS):
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(request)
        assert server.http.post(LOAD, timeout=60).status_code in (200, 429)
        wait_until(lambda: server.http.post(LOAD, timeout=60).status_code == 200)
        (loads,) = re.findall(r'shortlist_loads_total{outcome="ready"} (\S+)', server.http.get("/metrics").text)
        assert float(loads) < ABANDONED_LOADS / 4
        assert not any("Traceback" in line for line in server.log)


def test_a_server_that_loads_stops_in_time(bundles, home):
    for version in range(2, 40):
        put_version(bundles[version % 2], home, version)
    with RunningServer(home.parent, "--threads", "1", wait=False) as server:
        server.process.terminate()
        assert server.process.wait(timeout=STOP_SECONDS) == 0
        server.reader.join(timeout=10)
        assert sum("is ready on" in line for line in server.log) < 38
        assert not any("Traceback" in line for line in server.log)


def test_a_version_that_is_deleted_is_served_no_more_once_another_is(bundles, home):
    with RunningServer(home.parent, *POLLS) as server:
        shutil.copytree(bundles[0], home / ".2")
        (home / "1").rename(home / ".1")  # so that no look at the repository finds neither
        (home / ".2").rename(home / "2")
        wait_until(lambda: [version["version"] for version in describe(server)["versions"]] == [2])
        assert server.http.get("/v2/models/lm/versions/1").status_code == 404
        contexts = np.zeros((1, DIM), np.float32).tolist()
        assert server.http.post("/v1/topk", json={"model": "lm", "contexts": contexts, "k": CLASSES}).status_code == 200
