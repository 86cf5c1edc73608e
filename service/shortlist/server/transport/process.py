"""The process: a socket, uvicorn, signals."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import uvicorn
from fastapi import FastAPI
from pythonjsonlogger.json import JsonFormatter
from starlette.types import ASGIApp

from shortlist.errors import BadInput
from shortlist.runtime.memory import separate_large_arrays
from shortlist.runtime.threads import require_main_thread
from shortlist.server.access.policy import Counter
from shortlist.server.app import create_app
from shortlist.server.engine.service import Service
from shortlist.server.scheduling.admission import Admission
from shortlist.server.settings import Settings

from .connection import Connection
from .connection_limits import ConnectionLimits, ignore_refusal, limit_connections
from .fast_connection import FastConnection
from .fast_path import FastPath
from .gateway import Gateway
from .listeners import BACKLOG, announce, open_listeners
from .tls import load_certificate, make_context
from .uvicorn_protocol import UvicornServer

LAST_REQUESTS_SECONDS = 0.2  # for requests on their way when the socket closes
LAST_THREADS_SECONDS = 1.0  # for threads to end at last, before the process does without them
LAST_BODIES_SECONDS = 5.0  # then for the rest of bodies
NEW_OBJECTS = 5_000  # before the garbage collector looks at them: more than are in notes that wait to be counted
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

log = logging.getLogger(__name__)


def serve(settings: Settings, make_app: Callable[[Settings], FastAPI] = create_app) -> int:
    """Serve until SIGTERM or Ctrl-C; returns the exit code.

    make_app: makes the app, of whose service the rest is; one that has more pages, say.

    Raises NotFound for an empty repository, DeviceError, BadInput when the address cannot be had, or keys or
    certificate cannot be read, or in another thread than the main one.
    """
    require_main_thread()
    separate_large_arrays()
    logging.basicConfig(level=settings.log_level.upper(), handlers=[make_log_handler(settings.log_format)])
    app = make_app(settings)
    service = app.state.service
    gateway = Gateway(app, service)
    config = configure(gateway, settings, service.admission, gateway.fast_path, service.metrics.refusals)
    with contextlib.ExitStack() as stack:
        listeners = open_listeners(settings, stack)
        warn_of_open_access(service)
        server = Server(config, service)
        service.on_load_error, service.on_fault = server.give_up, server.fail
        server.run(listeners)
    return server.exit_code


def warn_of_open_access(service: Service) -> None:
    """Say in the log where everybody on the network may ask."""
    if service.access.keys is None and not service.settings.is_local:
        log.warning("whoever reaches %s may ask: give --api-keys-file to ask for keys", service.settings.host)


def make_log_handler(log_format: str) -> logging.Handler:
    """Writes the log to stderr, as text for people or as one JSON object a line for collectors."""
    handler = logging.StreamHandler()
    handler.setFormatter(make_json_formatter() if log_format == "json" else logging.Formatter(LOG_FORMAT))
    return handler


def make_json_formatter() -> JsonFormatter:
    """One object a line; its time is UTC as of RFC 3339, since a collector does not know this machine's zone."""
    names = "asctime levelname name message"
    formatter = JsonFormatter(names.split(), rename_fields={"asctime": "time", "levelname": "level"})
    formatter.converter = time.gmtime
    formatter.default_time_format, formatter.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"
    return formatter


def configure(
    app: ASGIApp,
    settings: Settings,
    admission: Admission,
    fast_path: FastPath | None = None,
    refusals: Mapping[str, Counter] = MappingProxyType({}),
) -> uvicorn.Config:
    """How uvicorn runs the app, with or without the fast path of a gateway; raises BadInput.

    admission: what connections hold in memory counts there. refusals: counters by reason, of connections that are
    too many and of what is no request.
    """
    tls = None if settings.tls_cert is None else make_context(settings)
    protocol = Connection if fast_path is None else partial(FastConnection, fast_path=fast_path)
    counts = [refusals[reason].inc if reason in refusals else ignore_refusal for reason in ("connections", "malformed")]
    limits = ConnectionLimits(limit_connections(settings.max_connections), admission, *counts)
    return uvicorn.Config(
        app,
        http=partial(protocol, limits=limits, patience=settings.body_timeout),  # type: ignore[arg-type]
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who asks is for the service to say
        backlog=BACKLOG,
        timeout_keep_alive=settings.keep_alive,  # type: ignore[arg-type]  # a whole number is not needed
        timeout_graceful_shutdown=settings.drain_seconds,
        ssl_context_factory=None if tls is None else lambda *_: tls,
    )


class Server(UvicornServer):
    """uvicorn's server, but it drains first: while /readyz says 503 it still accepts, then it stops and finishes."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self.service = service
        self.exit_code = 0

    @property
    def closing_seconds(self) -> float:
        """As long as a client may take to read any other response."""
        return self.service.settings.body_timeout

    def handle_signals(self) -> None:
        """Drain at SIGTERM, stop at once at Ctrl-C, read keys, certificate and repository again at SIGHUP.

        uvicorn would die of the first two, this one exits with 0. SIGUSR1, by which others open their logs again, does
        nothing.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        loop.add_signal_handler(signal.SIGTERM, self.drain)
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        loop.add_signal_handler(signal.SIGUSR1, ignore_signal)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Load and listen.

        The garbage collector skips loaded modules: every 60,000 requests they took 40 to 90 ms. It looks at new objects
        seldom: those that live until notes are counted were a twentieth of a small request.
        """
        gc.freeze()
        gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
        await super().startup([])
        for sock in sockets or ():
            await self.listen(sock)
            announce([sock], tls=self.config.ssl is not None)

    def reload(self) -> None:
        """Read the API keys, the certificate and the repository again; what was in force stays where that fails."""
        self.service.changes.look_again()
        self.reload_files()

    def reload_files(self) -> None:
        """Read the API keys and the certificate again; of each, what was in force stays where that fails."""
        if self.service.access.keys is not None:
            reload_one("the API keys", self.service.access.reload)
        if self.config.ssl is not None:
            reload_one("the certificate", self.reload_certificate)

    def reload_certificate(self) -> None:
        """Use what the files of the certificate hold now for new connections; raises BadInput."""
        assert self.config.ssl is not None, "there is a certificate"
        make_context(self.service.settings)  # one that is wrong must not touch the context in use
        load_certificate(self.config.ssl, self.service.settings)

    def drain(self) -> None:
        """No longer ready; keep accepting for the drain delay, so that a load balancer can look away."""
        self.be_unready()
        asyncio.get_running_loop().call_later(self.service.settings.drain_delay, self.stop)

    def be_unready(self) -> None:
        """Say on /readyz and in the log that the end comes, and load nothing more."""
        times = self.service.settings.drain_delay, self.service.settings.drain_seconds
        if not self.service.draining:
            log.info("told to end: requests are accepted for %g s more, and answered within %g s after that", *times)
        self.service.draining = True
        self.service.stop_loading()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, let open connections say what they still want, then finish."""
        self.close_listeners()
        self.service.close(LAST_BODIES_SECONDS)
        await asyncio.sleep(LAST_REQUESTS_SECONDS)
        await super().shutdown(sockets)
        end_soon(self.exit_code)

    def give_up(self) -> None:
        """Stop without having served: a model could not be loaded."""
        log.error("a model could not be loaded, and --exit-on-load-error wants the end then")
        self.fail()

    def fail(self) -> None:
        """Stop without delay, with exit code 1: it cannot go on."""
        self.exit_code = 1
        self.interrupt()

    def interrupt(self) -> None:
        """Stop without delay; at the second Ctrl-C without waiting for anything."""
        self.service.draining = True
        self.service.stop_loading()
        self.stop_without_delay()


def reload_one(what: str, reload: Callable[[], None]) -> None:
    """Read what a signal asks for again, and log how that went."""
    try:
        reload()
    except BadInput as error:
        log.error("%s: not read again, what was in force stays: %s", what, error)
    else:
        log.info("%s: read again", what)


def end_soon(code: int) -> None:
    """End the process in a moment with this exit code, be threads still at work: nobody waits for it any more.

    All that has to be kept is on the disk before it is answered.
    """
    timer = threading.Timer(LAST_THREADS_SECONDS, end_now, [code])
    timer.daemon = True
    timer.start()


def end_now(code: int) -> None:
    """End the process, once its log is written."""
    logging.shutdown()
    with contextlib.suppress(OSError):  # the disk of the log is full
        sys.stderr.flush()
    os._exit(code)


def ignore_signal() -> None:
    """Do nothing at a signal that would end the process otherwise."""
