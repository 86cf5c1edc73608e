"""What uvicorn does not document is used by one module, and is still there."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import uvicorn
from shortlist.server.transport import uvicorn_protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
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
    server = uvicorn.Server(config)
    assert (server.should_exit, server.force_exit) == (False, False)
    assert callable(server.capture_signals)
    assert "self.servers" in inspect.getsource(uvicorn.Server.startup)  # set there alone
