"""One of several processes that serve: its connections come from the supervisor, and so do signals and changes."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI

from shortlist.errors import ShortlistError
from shortlist.runtime.memory import give_back_memory, separate_large_arrays
from shortlist.runtime.shared_tables import share_tables_in
from shortlist.server.app import create_app
from shortlist.server.lifecycle.arrivals import digest_signature
from shortlist.server.models import Model
from shortlist.server.settings import Settings
from shortlist.server.transport.gateway import Gateway
from shortlist.server.transport.process import (
    Server,
    configure,
    ignore_signal,
    make_log_handler,
    warn_of_open_access,
)

from .connections import take_connections
from .everywhere import Everywhere
from .exchange import Request, call_app
from .link import Link, State
from .tasks import Tasks
from .views.metrics import read_families

STATE_SECONDS = 0.05  # until the supervisor knows that a process is ready, or of connections that have ended
LOAD_SECONDS = 0.5  # between looks whether everything is loaded
FAILURE_CODE = 1

log = logging.getLogger(__name__)


def run_worker(number: int, settings: Settings, control: socket.socket, passage: socket.socket, tables: Path) -> None:
    """Serve until the supervisor says so, or has ended; ends the process with its exit code.

    control, passage: to the supervisor, of messages and of connections. tables: where tables are shared.
    """
    gc.freeze()  # to look at what was imported would be to write to pages that all processes share
    for sock in (control, passage):
        sock.setblocking(False)
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(each, signal.SIG_IGN)  # until the server handles them: a terminal sends them to all processes
    separate_large_arrays()
    share_tables_in(tables)
    logging.basicConfig(level=settings.log_level.upper(), handlers=[make_log_handler(settings.log_format)])
    try:
        server = make_server(settings, passage, control)
    except ShortlistError as error:
        print(f"shortlist serve: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(FAILURE_CODE)
    if number == 0:
        warn_of_open_access(server.service)
    server.run([])
    sys.exit(server.exit_code)


def make_server(settings: Settings, passage: socket.socket, control: socket.socket) -> Worker:
    """The server of one process; raises ShortlistError."""
    app = create_app(settings)
    service = app.state.service
    link = Link({})
    gateway = Gateway(Everywhere(app, service, link), service)
    config = configure(gateway, settings, service.admission, gateway.fast_path, service.metrics.refusals)
    server = Worker(config, app, link, passage, control)
    service.on_load_error, service.on_fault = server.give_up, server.fail
    service.on_roll_back = server.tell_roll_back
    service.changes.poll_seconds = None  # the supervisor says when to look, one process after the other
    return server


class Worker(Server):
    """The server of one process, which listens nowhere.

    taken: connections so far. arriving: the protocols of those that are not yet open, as while TLS begins.
    """

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, link: Link, passage: socket.socket, control: socket.socket
    ) -> None:
        super().__init__(config, app.state.service)
        self.app, self.link, self.passage, self.control = app, link, passage, control
        self.taken = 0
        self.arriving: set[asyncio.Protocol] = set()
        self.tasks = Tasks()
        link.duties = {
            "request": self.respond,
            "metrics": self.read_metrics,
            "reload": self.reload_all,
            "look": self.look,
            "roll_back": self.roll_back,
            "unready": self.be_unready_soon,
            "stop": self.stop_soon,
            "interrupt": self.interrupt_soon,
        }

    def handle_signals(self) -> None:
        """Drain at SIGTERM; the other signals come over the supervisor."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.drain)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            loop.add_signal_handler(number, ignore_signal)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to load; take connections and messages from the supervisor from now on."""
        await super().startup(sockets)
        asyncio.get_running_loop().add_reader(self.passage, self.take)
        self.tasks.start(self.talk())
        self.tasks.start(self.give_back_memory())

    async def talk(self) -> None:
        """Do what the supervisor says; once it has ended, stop."""
        await self.link.run(self.control, self.read_state, STATE_SECONDS)
        if not self.service.draining:
            log.error("the supervisor has ended: this process finishes what it accepted and ends, too")
            self.drain()

    async def give_back_memory(self) -> None:
        """Give back what the loads of the start have left between the smaller things."""
        while not self.service.is_ready():
            await asyncio.sleep(LOAD_SECONDS)
        await asyncio.to_thread(give_back_memory)

    def read_state(self) -> State:
        """What the supervisor is told."""
        open_connections = len(self.connections) + len(self.arriving - self.connections)
        return State(self.service.is_ready(), open_connections, self.taken)

    def take(self) -> None:
        """Serve the connections that the supervisor has passed on."""
        connections, more = take_connections(self.passage)
        for connection in connections:
            self.taken += 1
            protocol = self.make_protocol()
            self.arriving.add(protocol)
            self.tasks.start(self.begin(connection, protocol))
        if not more:
            asyncio.get_running_loop().remove_reader(self.passage)

    async def begin(self, connection: socket.socket, protocol: asyncio.Protocol) -> None:
        """Begin to serve a connection."""
        try:
            await self.serve_connection(connection, protocol)
        finally:
            self.arriving.discard(protocol)

    def drain(self) -> None:
        """As any server; the supervisor passes no more connections on."""
        self.link.tell("leaving")
        super().drain()

    def tell_roll_back(self, model: Model, reason: str) -> None:
        """Have the other processes roll the same version back."""
        self.link.tell("rolled_back", [model.name, model.version, reason, digest_signature(model.folder)])

    async def respond(self, fields: list[Any]) -> Any:
        """This process's response to a request that another one got, and has let through."""
        return (await call_app(self.app, Request.from_json(fields), is_permitted=True)).to_json()

    async def read_metrics(self, _: None) -> list[Any]:
        """The metrics of this process."""
        self.service.settle()
        return self.service.metrics.read(read_families)

    async def reload_all(self, _: None) -> None:
        """Read the API keys, the certificate and the repository again."""
        self.reload_files()
        await self.service.changes.retry_all()

    async def look(self, _: None) -> None:
        """Serve what the repository holds now."""
        await self.service.changes.update_all()

    async def roll_back(self, fields: list[Any]) -> None:
        """Roll a version back that another process has found to be worse, unless its files are others by now."""
        name, version, reason, signature = fields
        table = self.service.models.by_name.get(name)
        model = None if table is None else table.by_number.get(version)
        if model is not None and model.state == "ready" and digest_signature(model.folder) == signature:
            await self.service.changes.roll_back(model, reason)

    async def be_unready_soon(self, _: None) -> None:
        self.be_unready()

    async def stop_soon(self, _: None) -> None:
        self.stop()

    async def interrupt_soon(self, _: None) -> None:
        self.interrupt()
