"""A server without Ray, over one connection: what Ray's time is held against."""

from __future__ import annotations

from pathlib import Path

from shortlist.bundle.reader import Bundle

from benchmarks.common.processes import Process, free_port, python_command
from benchmarks.http.client import requests

from .cluster_requests import K, time_requests
from .contexts import NAME, make_contexts


def time_plain_server(bundle: Bundle, cache: Path) -> float:
    """The median time of a request to the same head, whole, us."""
    contexts, port = make_contexts(64, bundle.manifest.dim, seed=4), free_port()
    command = python_command("shortlist", "serve", bundle.folder.parents[1], "--port", port, "--threads", "1")
    with Process("plain", command, port, cache / "logs") as server:
        request = requests.make_topk(NAME, contexts[:1], K)
        server.wait_ready(lambda: requests.send_request(server.url, request))
        return time_requests(server.url, contexts)
