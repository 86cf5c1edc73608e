"""What uvicorn does not document is used by one module, and is still there."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
from pathlib import Path
from types import SimpleNamespace

import uvicorn
import uvloop
from shortlist.server.transport import uvicorn_protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

PRIVATE_NAMES = re.compile(
    r"httptools_impl|uvicorn\._|_start_asgi_task|timeout_keep_alive_task|self\.(cycle|pipeline|flow|server_state)\b"
    r"|capture_signals|should_exit|force_exit|self\.servers\b"
)


def test_no_other_module_uses_its_private_names():
    here = Path(uvicorn_protocol.__file__)
    package = here.parent.parent.parent
    users = {path for path in package.rglob("*.py") if PRIVATE_NAMES.search(path.read_text("utf-8"))}
    assert users == {here}


def test_the_private_names_are_still_there():
    async def app(scope, receive, send):
        """An app that no test sends a request to."""

    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None)
    config.load()
    protocol = HttpToolsProtocol(config=config, server_state=ServerState(), app_state={}, _loop=object())
    for name in ("cycle", "pipeline", "flow", "timeout_keep_alive_task", "timeout_keep_alive", "server_state", "scope"):
        assert hasattr(protocol, name), name
    for name in ("_start_asgi_task", "timeout_keep_alive_handler", "send_400_response", "on_message_begin"):
        assert callable(getattr(HttpToolsProtocol, name)), name
    assert {"transport", "response_started"} <= set(RequestResponseCycle.__init__.__code__.co_names)
    server = uvicorn.Server(config)
    assert (server.should_exit, server.force_exit) == (False, False)
    assert callable(server.capture_signals)
    assert "self.servers" in inspect.getsource(uvicorn.Server.startup)  # set there alone


class Transport:
    """A transport that keeps what is written to it, a list for each system call."""

    def __init__(self):
        self.calls, self.closed = [], False

    def write(self, data):
        self.calls.append([data])

    def writelines(self, parts):
        self.calls.append(list(parts))

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed


def test_the_head_of_a_response_is_written_with_what_follows_it():
    cycle, transport = SimpleNamespace(response_started=False), Transport()
    response = uvicorn_protocol.WholeResponse(cycle, transport)
    response.write(b"interim")
    cycle.response_started = True
    response.write(b"head")
    assert transport.calls == [[b"interim"]]
    assert response.cycle is None  # else nothing of a request would be freed before the next garbage collection
    response.write(b"body")
    response.write(b"more")
    assert transport.calls == [[b"interim"], [b"head", b"body"], [b"more"]]
    response.close()
    assert (len(transport.calls), response.is_closing()) == (3, True)


def test_a_head_that_nothing_follows_is_written_before_the_connection_is_closed():
    transport = Transport()
    response = uvicorn_protocol.WholeResponse(SimpleNamespace(response_started=True), transport)
    response.write(b"head")
    response.close()
    assert (transport.calls, transport.closed) == ([[b"head"]], True)


class Protocol(asyncio.Protocol):
    """Counts connections."""

    count = 0

    def connection_made(self, transport):
        Protocol.count += 1


def test_many_connections_are_accepted_in_a_round_of_the_event_loop():
    """One a round would keep a probe waiting behind all others that came before it, where a round takes long."""
    count = 64
    least = count / uvicorn_protocol.ACCEPTED_AT_ONCE
    rounds, closed = uvloop.run(count_rounds(count))
    assert rounds <= 2 * least < count  # uvloop alone takes as many as connections
    assert closed


async def count_rounds(count):
    """How many rounds of the loop accept so many connections, and whether nobody listens after that."""
    Protocol.count = 0
    listener = socket.create_server(("127.0.0.1", 0), backlog=2 * count)
    place = listener.getsockname()
    server = uvicorn_protocol.UvicornServer(SimpleNamespace(ssl=None, backlog=2 * count))
    server.servers, server.make_protocol = [], Protocol
    await server.listen(listener)
    clients = [socket.create_connection(place) for _ in range(count)]
    rounds = 0
    while Protocol.count < count:
        await asyncio.sleep(0)
        rounds += 1
    for client in clients:
        client.close()
    server.close_listeners()
    await asyncio.sleep(0.01)
    with socket.socket() as late:
        return rounds, late.connect_ex(place) != 0
