"""The process: readiness, signals, what it says when it cannot start."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
import shortlist
import uvicorn
from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.server.metrics.recorder import MAX_NOTES
from shortlist.server.transport.listeners import listen
from shortlist.server.transport.process import Server

from tests.support.layers import DIM, RunningServer, copy_writable, make_contexts, run_cli

pytestmark = pytest.mark.slow

ROWS = make_contexts(rows=64, seed=7).contexts


def copy(repository, target, *bundles):
    for name in bundles:
        copy_writable(repository / name, target / name)
    return target


def one_line(process):
    assert process.returncode == 1
    assert len(process.stderr.splitlines()) == 1, process.stderr
    return process.stderr.strip()


@pytest.mark.parametrize("flags", [(), ("--processes", "2", "--log-level", "error")])
def test_port_in_use(small_repository, flags):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        line = one_line(run_cli("serve", small_repository, "--port", port, *flags))
    assert line == f"shortlist serve: port {port} on 127.0.0.1 is in use: choose another with --port"


def test_a_port_that_is_taken_leaves_no_socket_open():
    """Warnings are errors: a socket that nobody closed would be one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with pytest.raises(shortlist.errors.BadInput, match="in use"):
            listen("127.0.0.1", listener.getsockname()[1])
        gc.collect()


def test_modules_are_not_looked_through_for_garbage_while_it_serves_nor_notes_that_wait(monkeypatch):
    async def startup(self, sockets=None):
        events.append((gc.get_freeze_count(), gc.get_threshold()[0]))

    events, threshold = [], gc.get_threshold()
    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    before = gc.get_freeze_count()
    try:
        asyncio.run(Server(uvicorn.Config("no:app"), None).startup())
    finally:
        gc.unfreeze()
        gc.set_threshold(*threshold)
    ((frozen, new_objects),) = events
    assert frozen > before + 10_000
    assert new_objects > 4 * MAX_NOTES


def test_address_of_another_machine(small_repository):
    for host in ("192.0.2.1", "no.such.host.invalid", "a..b"):
        assert "--host" in one_line(run_cli("serve", small_repository, "--host", host, "--port", 0))


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.mkdir(), lambda path: (path / "lm").mkdir(parents=True)]
)
def test_empty_repository(tmp_path, make):
    make(tmp_path / "repo")
    assert "repo" in one_line(run_cli("serve", tmp_path / "repo", "--port", 0))


def test_device_that_is_not_there(small_repository):
    assert "shortlist[gpu]" in one_line(run_cli("serve", small_repository, "--device", "cuda:0", "--port", 0))
    assert "is no device" in one_line(run_cli("serve", small_repository, "--device", "tpu", "--port", 0))


def wait_until(http, state):
    for _ in range(200):
        model = http.get("/v1/models/dense").json()
        if model["state"] == state and http.get("/v1/models/lm").json()["state"] == "ready":
            return model
        time.sleep(0.05)
    raise AssertionError(model)


@pytest.mark.parametrize("damage", ["cut", "edited", "newer"])
def test_a_broken_bundle_never_becomes_ready_and_the_others_serve(small_repository, tmp_path, damage):
    repository = copy(small_repository, tmp_path, "lm/1", "dense/1")
    folder = repository / "dense" / "1"
    if damage == "newer":
        path = folder / "manifest.json"
        path.write_text(path.read_text().replace(f'"format": {FORMAT_VERSION}', '"format": 99'))
    else:
        path = max(folder.rglob("*.onnx"), key=lambda path: path.stat().st_size)
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content if damage == "edited" else content[:-4])
    with RunningServer(repository, wait=False) as server, shortlist.Client(server.url) as client:
        model = wait_until(server.http, "failed")
        ready = server.http.get("/readyz")
        assert ready.status_code == 503
        assert "'dense'" in ready.json()["error"]
        assert str(path.name) in model["reason"]
        assert server.http.get("/healthz").status_code == 200
        assert server.http.get("/v2/models/lm/ready").status_code == 200
        assert server.http.get("/v2/models/dense/ready").status_code == 503
        assert client.topk("lm", ROWS, 1).ids.shape == (64, 1)
        with pytest.raises(shortlist.errors.NotReady, match="dense"):
            client.topk("dense", ROWS, 1)
        assert "shortlist_ready 0.0" in server.http.get("/metrics").text


def test_the_latest_version_that_is_ready_answers(small_repository, tmp_path):
    repository = copy(small_repository, tmp_path, "lm/1")
    for version in ("2", "10", "11"):
        copy_writable(repository / "lm" / "1", repository / "lm" / version)
    (repository / "lm" / "11" / "labels.json").write_text("[]")
    with RunningServer(repository, wait=False) as server:
        for _ in range(200):
            states = [version["state"] for version in server.http.get("/v1/models/lm").json()["versions"]]
            if "loading" not in states:
                break
            time.sleep(0.05)
        assert states == ["ready", "ready", "ready", "failed"]
        ask = {"model": "lm", "contexts": ROWS[:1].tolist(), "k": 1}
        assert server.http.post("/v1/topk", json=ask).json()["version"] == 10
        assert server.http.post("/v1/topk", json=ask | {"version": 2}).json()["version"] == 2
        assert server.http.post("/v1/topk", json=ask | {"version": 11}).status_code == 503


class Load(threading.Thread):
    """Asks again and again until the server is gone; remembers every answer."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url, self.codes, self.errors = url, [], []
        self.content = {"model": "lm", "contexts": ROWS.tolist(), "k": 300}

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as http:
            while True:
                try:
                    self.codes.append(http.post("/v1/topk", json=self.content).status_code)
                except httpx.ConnectError:
                    return  # not accepted: nothing was promised
                except httpx.TransportError as error:
                    self.errors.append(error)
                    return


def test_sigterm_under_load_says_so_and_finishes_what_it_accepted(small_repository):
    with RunningServer(small_repository, "--drain-delay", "1.5") as server:
        threads = [Load(server.url) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.7)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        draining = server.http.get("/readyz")
        assert server.process.wait(timeout=20) == 0
        for thread in threads:
            thread.join(timeout=20)
    assert draining.status_code == 503
    assert "draining" in draining.json()["error"]
    assert {code for thread in threads for code in thread.codes} == {200}
    assert all(len(thread.codes) > 2 for thread in threads)
    assert [error for thread in threads for error in thread.errors] == []
    assert not any("Traceback" in line for line in server.log)
    assert sum("told to end: requests are accepted for 1.5 s more" in line for line in server.log) == 1


def test_ctrl_c_stops_at_once(small_repository):
    with RunningServer(small_repository, "--drain-delay", "60") as server:
        server.http.close()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(timeout=10) == 0


def test_sigterm_while_loading(small_repository):
    with RunningServer(small_repository, "--drain-delay", "0", wait=False) as server:
        server.process.terminate()
        assert server.process.wait(timeout=20) == 0
    assert not any("Traceback" in line for line in server.log)


def test_a_killed_server_frees_its_port(small_repository):
    with RunningServer(small_repository) as server:
        server.process.kill()
        server.process.wait(timeout=10)
        port = server.url.rpartition(":")[2]
        with shortlist.Client(server.url) as client, pytest.raises(shortlist.errors.Unreachable):
            client.topk("lm", ROWS, 1)
    with RunningServer(small_repository, "--port", port) as again:
        assert again.url == server.url


def test_limits_from_flags(small_repository):
    with RunningServer(small_repository, "--body-limit", "2000", "--max-rows", "8", "--answer-limit", "1200") as server:
        with shortlist.Client(server.url) as client:
            assert client.topk("lm", ROWS, 10).ids.shape == (64, 10)  # split by the client until it fits
            with pytest.raises(shortlist.errors.TooLarge, match="1200"):
                client.topk("lm", ROWS, 101)
        rows = [[0.0] * DIM] * 9
        response = server.http.post("/v1/topk", json={"model": "lm", "contexts": rows, "k": 1})
        assert response.status_code == 413
        assert "9 rows" in response.json()["error"]


def test_the_server_needs_neither_torch_nor_onnx(small_repository):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'onnx', 'shortlist_exporter', 'shortlist_models']));"
        f"from shortlist.server.models import prepare_head; import shortlist.server;"
        "from pathlib import Path; from shortlist.bundle.reader import Bundle;"
        f"prepare_head(Bundle(Path({str(small_repository / 'lm' / '1')!r})), None, None)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_the_log_in_json_holds_one_object_a_line(small_repository):
    with RunningServer(small_repository, "--log-format", "json") as server:
        server.http.get("/healthz")
        lines = [json.loads(line) for line in server.log if line.startswith("{")]
    assert {"time", "level", "name", "message"} <= set(lines[0])
    age = datetime.now(UTC) - datetime.fromisoformat(lines[0]["time"])  # whatever this machine's zone is
    assert timedelta(0) < age < timedelta(minutes=5)
    assert any("is ready" in line["message"] for line in lines)


def test_what_is_no_http_gets_a_sentence_in_json(small_server):
    host, port = small_server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(b"what is this\r\n\r\n")
        head, _, body = connection.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in head
    assert set(json.loads(body)) == {"error"}


WORK = """
import sys, threading, time
from shortlist.server.transport.process import end_soon
threading.Thread(target=time.sleep, args=(60,)).start()
print("a last line", file=sys.stderr)
end_soon(3)
"""


def test_a_process_ends_in_time_be_the_disk_of_its_log_full():
    work = WORK.replace('print("a last line", file=sys.stderr)', 'sys.stderr.write("half a line")')
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        result = subprocess.run([sys.executable, "-c", work], stderr=full, env=buffered, timeout=50, check=False)
    assert result.returncode == 3


def test_a_process_ends_in_time_be_threads_still_at_work():
    start = time.monotonic()
    result = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, timeout=50, check=False)
    assert result.returncode == 3
    assert result.stderr == "a last line\n"
    assert time.monotonic() - start < 50
