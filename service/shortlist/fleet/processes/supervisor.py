"""`shortlist serve --processes N`: a process that accepts connections, and N that serve them as one server.

The supervisor accepts and passes each connection to the process with the fewest. With sockets of their own
(SO_REUSEPORT) a hash would choose, which gives three of four connections to one process as often as not, and what waits
in the queue of a process that was killed is lost or waits for the next one; with one inherited socket, whichever
process wakes first takes all that wait, and one that is still loading cannot stand aside.

Processes are forked from a server that has imported everything and loaded nothing (`multiprocessing`'s fork server), so
that they share the pages of modules.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import signal
import socket
import time
from functools import partial
from pathlib import Path
from typing import Any

from shortlist.runtime.shared_tables import make_tables_folder
from shortlist.server.settings import Settings
from shortlist.server.transport.listeners import announce, open_listeners
from shortlist.server.transport.process import ignore_signal, make_log_handler

from .beats import watch_beats
from .changes import Changes, ask_all
from .connections import Acceptor
from .exchange import Request
from .link import State
from .member import Member, make_member_settings, start_fork_server, start_member
from .tasks import Tasks
from .views.metrics import Families, Family, keep_places, list_places, merge_families, render_families

PRELOADED_MODULES = ["shortlist.fleet.processes.worker"]
SHORT_LIFE_SECONDS = 10.0  # a process that ended sooner is not replaced at once
MAX_REST_SECONDS = 30.0  # before a process is replaced that always ends soon
EXTRA_SECONDS = 5.0  # beyond the drain's, before processes are killed

log = logging.getLogger(__name__)


def serve_processes(settings: Settings) -> int:
    """Serve by several processes until SIGTERM or Ctrl-C; returns the exit code. Raises BadInput."""
    logging.basicConfig(level=settings.log_level.upper(), handlers=[make_log_handler(settings.log_format)])
    with make_tables_folder() as tables:
        return asyncio.run(Supervisor(settings, tables).run())


class Supervisor:
    """The processes of one server. departed: what those had counted that have ended."""

    def __init__(self, settings: Settings, tables: Path) -> None:
        self.settings, self.tables = settings, tables
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED_MODULES)
        self.members: list[Member] = []
        self.acceptor = Acceptor(self.pass_on)
        self.tasks = Tasks()
        self.changes = Changes()
        self.departed: Families = {}
        self.replacements = 0
        self.rest_seconds = 0.0
        self.looks: asyncio.Queue[str] = asyncio.Queue()
        self.stopping = False
        self.ended = asyncio.Event()
        self.exit_code = 0

    async def run(self) -> int:
        """Start, serve, stop; returns the exit code. Raises BadInput."""
        start_fork_server()
        self.handle_signals()
        with contextlib.ExitStack() as stack:
            try:
                await self.begin()
                if not self.stopping:
                    self.acceptor.start(listeners := open_listeners(self.settings, stack))
                    announce(listeners, tls=self.settings.tls_cert is not None)
                self.tasks.start(self.watch())
                self.tasks.start(watch_beats(lambda: [member.pulse for member in self.members], self.end_hanging))
                await self.ended.wait()
            finally:
                await self.kill_all()
        return self.exit_code

    # Processes come and go

    async def begin(self) -> None:
        """Start all processes, the others once the first has begun: what keeps them from it is said once."""
        for number in range(self.settings.processes):
            if not self.stopping:
                member = await self.add_member(number, joins_at_once=True)
                if number == 0:
                    await self.wait_for_begin(member)
        for member in list(self.members):
            await self.wait_for_begin(member)

    async def add_member(self, number: int, *, joins_at_once: bool) -> Member:
        """Start a process."""
        own = make_member_settings(self.settings, number)
        member = await start_member(self.context, number, own, self.tables, self.handle, joins_at_once=joins_at_once)
        self.members.append(member)
        assert member.channel is not None
        self.tasks.start(member.channel.run())
        asyncio.get_running_loop().add_reader(member.process.sentinel, self.note_end, member)
        if self.stopping:  # it began meanwhile, and the server ends with it
            self.ended.clear()
            member.tell("interrupt")
        return member

    async def wait_for_begin(self, member: Member) -> None:
        """Wait until a process has begun or ended, or everything has ended."""
        waits = [self.tasks.start(event.wait()) for event in (member.began, self.ended)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)

    def note_end(self, member: Member) -> None:
        """Keep what a process had counted that has ended, and replace it, unless the server stops."""
        asyncio.get_running_loop().remove_reader(member.process.sentinel)
        member.process.join()
        self.members.remove(member)
        member.began.set()  # it never will any more, and another takes its place: nobody must wait for it
        for connection in member.close():
            self.tasks.start(self.acceptor.pass_on_soon(connection))
        self.departed = merge_families([self.departed, member.counts])
        code = member.process.exitcode
        if not self.stopping and member.joins_at_once and code == 1 and not (member.state and member.state.ready):
            self.exit_code = 1  # what keeps one from beginning keeps all from it; it has said why
            self.interrupt()
        elif not self.stopping:
            self.tasks.start(self.replace(member))
        if self.stopping and not self.members:
            self.ended.set()

    def end_hanging(self) -> None:
        """Kill the processes that hang, unless the server stops; others take their places then."""
        for member in [] if self.stopping else self.members:
            if member.hangs(self.settings.hang_seconds):
                log.error("%s has done nothing for %.0f s and is killed", member, member.pulse.silence)
                member.process.kill()

    async def replace(self, member: Member) -> None:
        """Start another process in the place of one that has ended: at once, or after a rest where it ended soon.

        Where the system starts none, for want of memory or files, that is tried again after longer and longer rests.
        """
        ended_soon = time.monotonic() - member.start_time < SHORT_LIFE_SECONDS
        self.rest_seconds = lengthen_rest(self.rest_seconds) if ended_soon else 0.0
        log.error("%s ended with code %s: another takes its place", member, member.process.exitcode)
        await asyncio.sleep(self.rest_seconds)
        while not self.stopping:
            try:
                await self.add_member(member.number, joins_at_once=False)
            except (OSError, EOFError) as error:  # the second of a fork server that could not fork
                self.rest_seconds = lengthen_rest(self.rest_seconds)
                log.error("process %d does not start (%s): next try in %.0f s", member.number, error, self.rest_seconds)
                await asyncio.sleep(self.rest_seconds)
            else:
                self.replacements += 1
                return

    async def note_state(self, member: Member, state: State) -> None:
        """Note what a process says of itself; one that takes another's place joins once it is ready."""
        if member.state is None:
            log.info("%s has begun", member)
            member.joined = member.joins_at_once
        became_ready = state.ready and not (member.state and member.state.ready)
        member.state = state
        member.began.set()
        if became_ready and not member.joined:
            await self.join(member)

    async def join(self, member: Member) -> None:
        """Tell a new process what was changed by request so far; then connections go to it.

        It has read the repository as it is now, and so do the others then.
        """
        await self.changes.repeat(member, partial(self.list_others, member))
        log.info("%s is ready and takes connections", member)
        self.looks.put_nowait("look")

    # Signals

    def handle_signals(self) -> None:
        """As a server of one process does: drain at SIGTERM, stop at once at Ctrl-C, read again at SIGHUP."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.drain)
        loop.add_signal_handler(signal.SIGINT, self.interrupt)
        loop.add_signal_handler(signal.SIGHUP, self.looks.put_nowait, "reload")
        loop.add_signal_handler(signal.SIGUSR1, ignore_signal)

    def drain(self) -> None:
        """Have all processes say that the end comes; they go on taking connections for the drain delay."""
        if not self.stopping:
            for member in self.members:
                member.leaving = False  # a signal to all processes may have reached them first
            delay = self.settings.drain_delay
            asyncio.get_running_loop().call_later(delay, self.finish, list(self.members))
            self.stop("unready", delay + self.settings.drain_seconds + EXTRA_SECONDS)

    def finish(self, members: list[Member]) -> None:
        """Accept nothing more, and then have processes finish: each takes what was passed on to it before."""
        self.acceptor.stop()
        for member in members:
            member.tell("stop")

    def interrupt(self) -> None:
        """Have all processes stop at once, at the second Ctrl-C without waiting for anything."""
        self.acceptor.stop()
        self.stop("interrupt", self.settings.drain_seconds + EXTRA_SECONDS)

    def stop(self, name: str, seconds: float) -> None:
        """Tell all processes to end, and wait for so many seconds."""
        self.stopping = True
        for member in self.members:
            member.tell(name)
        if not self.members:
            self.ended.set()
        asyncio.get_running_loop().call_later(seconds, self.ended.set)

    async def kill_all(self) -> None:
        """Kill the processes that have not ended, which is an error of those that were told to."""
        level, self.stopping = logging.ERROR if self.stopping else logging.DEBUG, True
        for member in self.members:
            log.log(level, "%s has not ended in time and is killed", member)
            member.process.kill()
        self.tasks.cancel()

    def pass_on(self, connection: socket.socket) -> bool:
        """Pass a connection to the process with the fewest; returns whether one could take it."""
        return any(each.passage.send(connection) for each in sorted(self.list_members(), key=lambda each: each.load))

    # What processes ask

    async def handle(self, member: Member, name: str, value: Any) -> Any:
        """Answer a question of a process."""
        list_others = partial(self.list_others, member)
        if name == "state":
            return await self.note_state(member, State(*value))
        if name == "beat":
            member.note_beat(value)
        elif name == "leaving":
            member.leaving = not self.stopping
        elif name == "change":
            return (await self.changes.change(Request.from_json(value), member, list_others)).to_json()
        elif name == "others":
            return await ask_all(Request.from_json(value), list_others())
        elif name == "metrics":
            return (await self.render_metrics()).decode()
        elif name == "rolled_back":
            await self.changes.roll_back(value, list_others)
        return None

    def list_members(self) -> list[Member]:
        """All processes that take connections, and so do what is asked for by them."""
        return [member for member in self.members if member.takes_connections]

    def list_others(self, member: Member) -> list[Member]:
        """All processes of `list_members` but `member`."""
        return [other for other in self.list_members() if other is not member]

    async def watch(self) -> None:
        """Have the processes look at the repository again where that is asked for, and with polls now and then."""
        seconds = self.settings.poll_seconds if self.settings.polls else None
        while True:
            name = "look"
            with contextlib.suppress(TimeoutError):
                name = await asyncio.wait_for(self.looks.get(), seconds)
            await self.changes.ask_each(name, None, self.list_members)

    async def render_metrics(self) -> bytes:
        """The metrics of all processes as text."""
        await asyncio.gather(*(member.read_counts() for member in self.members))
        live = merge_families([member.shown_counts for member in self.members])
        self.departed = keep_places(self.departed, list_places(live))
        ready = sum(member.takes_connections and bool(member.state and member.state.ready) for member in self.members)
        return render_families(merge_families([live, self.departed]) | describe_processes(ready, self.replacements))


def lengthen_rest(seconds: float) -> float:
    """The seconds to rest after a rest that was too short."""
    return min(max(1.0, 2 * seconds), MAX_REST_SECONDS)


def describe_processes(ready: int, replacements: int) -> Families:
    """The metrics of the supervisor itself."""
    processes, replaced = "shortlist_processes", "shortlist_process_replacements"
    return {
        processes: Family("gauge", "processes that are ready", {(processes, ()): ready}),
        replaced: Family("counter", "processes that took another's place", {(f"{replaced}_total", ()): replacements}),
    }
