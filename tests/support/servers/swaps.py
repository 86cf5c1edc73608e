"""Versions that follow each other in a served repository while clients ask: who answers what, and what stays behind."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import shortlist

from tests.support.layers import RunningServer
from tests.support.servers.threads import AskingThreads

K = 3
SWAP_SECONDS = 60.0  # longest wait for a version
REST_SECONDS = 3.0  # after the load, until what was freed is given back


def put_version(bundle: Path, home: Path, version: int) -> None:
    """Put a copy of a bundle into a repository at once, as exports do."""
    shutil.copytree(bundle, home / f".{version}")
    (home / f".{version}").rename(home / str(version))


def put_version_by_files(bundle: Path, home: Path, version: int, seconds: float) -> None:
    """The same as `rsync --inplace` does: file by file, the manifest first and the largest file in halves."""
    target = home / str(version)
    files = sorted((path for path in bundle.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    files.sort(key=lambda path: path.name != "manifest.json")
    target.mkdir()
    for path in files:
        copy = target / path.relative_to(bundle)
        copy.parent.mkdir(exist_ok=True)
        content = path.read_bytes()
        with copy.open("wb") as file:
            file.write(content[: len(content) // 2])
            file.flush()
            time.sleep(seconds / len(files))
            file.write(content[len(content) // 2 :])


def read_memory(server: RunningServer) -> int:
    """Bytes of the server's memory that no file can be read again for."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) << 10


def list_versions_in_metrics(server: RunningServer) -> set[int]:
    """The versions that any series names; what has just ended is shown in one scrape more."""
    server.http.get("/metrics")
    return {int(version) for version in re.findall(r'version="(\d+)"', server.http.get("/metrics").text)}


class Load(AskingThreads):
    """Clients that ask until they are stopped: over JSON, whose answers say their version, and in binary.

    bundles: whose answers are right, by version modulo their number. failures: what was not answered. strays: answers
    of neither version. versions: that have answered.
    """

    def __init__(self, url: str, bundles: list[Path], contexts: np.ndarray, threads: int = 2) -> None:
        heads = [shortlist.load(bundle, threads=1) for bundle in bundles]
        self.url, self.contexts = url, contexts
        self.expected = [[head.topk(row[None], K).ids.tolist() for row in contexts] for head in heads]
        self.failures: list[str] = []
        self.strays: list[object] = []
        self.versions: set[int] = set()
        self.answers = 0
        super().__init__([partial(self.run, job) for job in (self.ask_json, self.ask_binary) for _ in range(threads)])

    def run(self, job) -> None:
        with httpx.Client(base_url=self.url, timeout=30) as http, shortlist.Client(self.url, timeout=30) as client:
            while not self.stopping.is_set():
                for row in range(len(self.contexts)):
                    try:
                        job(row, http, client)
                        self.answers += 1
                    except Exception as error:
                        self.failures.append(repr(error))

    def ask_json(self, row: int, http: httpx.Client, client: shortlist.Client) -> None:
        body = {"model": "lm", "contexts": self.contexts[row : row + 1].tolist(), "k": K}
        response = http.post("/v1/topk", json=body).raise_for_status().json()
        self.versions.add(response["version"])
        if response["ids"] != self.expected[response["version"] % len(self.expected)][row]:
            self.strays.append((response["version"], row, response["ids"]))

    def ask_binary(self, row: int, http: httpx.Client, client: shortlist.Client) -> None:
        ids = client.topk("lm", self.contexts[row : row + 1], K).ids.tolist()
        if all(ids != expected[row] for expected in self.expected):
            self.strays.append((row, ids))


def wait_for_version(server: RunningServer, version: int) -> None:
    """Wait until a version is the one that answers."""
    for _ in range(int(SWAP_SECONDS / 0.02)):
        with contextlib.suppress(KeyError):
            if server.http.get("/v1/models/lm").json()["version"] == version:
                return
        time.sleep(0.02)
    raise AssertionError(f"version {version} was not served: {server.log[-5:]}")


def measure_memory(server: RunningServer, contexts: np.ndarray) -> int:
    """Bytes of memory after a rest, once the version has answered many rows at a time.

    ONNX Runtime keeps what its largest call needed, and how many rows that was is chance: of requests that waited, and
    of rows that are asked again for the served precision.
    """
    for exact in (False, True):
        body = {"model": "lm", "contexts": contexts.tolist(), "k": K, "exact": exact}
        server.http.post("/v1/topk", json=body).raise_for_status()
    time.sleep(REST_SECONDS)
    return read_memory(server)


def swap_under_load(server: RunningServer, home: Path, bundles: list[Path], contexts: np.ndarray, swaps: int):
    """Put version after version into a repository that holds version 1; returns the load, and memory before and after.

    Every fifth arrives file by file. Former versions are deleted once they are served no more.
    """
    with Load(server.url, bundles, contexts) as load:
        before = measure_memory(server, contexts)
        for version in range(2, swaps + 2):
            if version % 5:
                put_version(bundles[version % len(bundles)], home, version)
            else:
                put_version_by_files(bundles[version % len(bundles)], home, version, 0.5)
            wait_for_version(server, version)
            shutil.rmtree(home / str(version - 1))
        after = measure_memory(server, contexts)
    return load, before, after
