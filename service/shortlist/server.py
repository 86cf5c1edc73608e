"""uvicorn around the app: one process, a clear word when the port is taken, a clean end on SIGTERM."""

from __future__ import annotations

import logging
import socket
import sys
from types import FrameType

import uvicorn
from fastapi import FastAPI

from .app import create_app
from .errors import ShortlistError
from .settings import Settings

BACKLOG = 2048


class Server(uvicorn.Server):
    """A uvicorn server whose readiness goes as soon as it is told to stop."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        """Serve `app`."""
        super().__init__(config)
        self.app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Not ready from now on; uvicorn then finishes what was accepted."""
        self.app.state.service.draining = True
        super().handle_exit(sig, frame)


def bound(host: str, port: int) -> socket.socket:
    """A listening socket; raises ShortlistError when the address is taken or not ours."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ShortlistError(f"cannot listen on {host}:{port} ({error.strerror}): choose another with --port") from None
    return listener


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; raises ShortlistError when it cannot start."""
    logging.basicConfig(
        level=settings.log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    app = create_app(settings)
    listener = bound(settings.host, settings.port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=settings.drain_seconds,
        loop="uvloop",
        http="httptools",
    )
    host, port = listener.getsockname()[:2]
    logging.getLogger("shortlist.server").info("listening on http://%s:%d", host, port)
    Server(config, app).run(sockets=[listener])
