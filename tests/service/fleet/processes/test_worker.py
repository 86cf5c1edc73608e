"""The server of one of several processes."""

from __future__ import annotations

import asyncio
import socket
import ssl
from types import SimpleNamespace

import pytest
import trustme
import uvicorn
from shortlist.fleet.processes.connections import SIGN, make_passage
from shortlist.fleet.processes.link import Link
from shortlist.fleet.processes.worker import Worker


async def serve_nothing(scope, receive, send):
    """An app that no request reaches."""


def make_worker(passage, tls):
    """A worker whose connections come by `passage`."""
    config = uvicorn.Config(serve_nothing, ws="none", lifespan="off", log_config=None)
    config.load()
    if tls:
        config.ssl = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        trustme.CA().issue_cert("localhost").configure_cert(config.ssl)
    service = SimpleNamespace(is_ready=lambda: True, settings=SimpleNamespace(body_timeout=1.0))
    worker = Worker(config, SimpleNamespace(state=SimpleNamespace(service=service)), Link({}), passage, None)
    worker.lifespan = config.lifespan_class(config)
    return worker


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_connection_counts_as_open_from_its_arrival_to_its_end(tls):
    """Else those that arrive seem gone to the supervisor, which passes others to the process with the fewest."""

    async def read_states():
        ours, theirs = make_passage()
        client, sock = socket.socketpair()
        worker = make_worker(theirs, tls)
        states = [worker.read_state()]
        with ours, theirs, client:
            socket.send_fds(ours, [SIGN], [sock.fileno()])
            sock.close()
            worker.take()
            for _ in range(20):
                states.append(worker.read_state())
                await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        return [*states, worker.read_state()]

    first, *between, last = asyncio.run(read_states())
    assert first == (True, 0, 0)
    assert set(between) == {(True, 1, 1)}
    assert last == (True, 0, 1)
