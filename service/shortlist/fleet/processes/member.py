"""One of the supervisor's processes, as the supervisor sees it."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from shortlist.runtime.threads import count_available_threads
from shortlist.server.settings import Settings

from .beats import Pulse
from .channel import Channel, ChannelClosed
from .connections import Passage, make_passage
from .exchange import Request, Response
from .link import State
from .views.metrics import Families, keep_counts, parse_families
from .worker import run_worker

GROUP_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)  # that may be sent to every process of a server
ANSWER_SECONDS = 3.0  # for what takes no time; one that does not answer by then is left out

Handle = Callable[["Member", str, Any], Awaitable[Any]]


class Member:
    """A process, its channel and the way by which it gets connections.

    state: as it said last; None before it has begun. joined: whether connections and changes go to it. leaving: whether
    it has begun to drain. pulse: when it was heard last. content: its metrics as it told them last.
    """

    def __init__(self, number: int, process: BaseProcess, passage: Passage, *, joins_at_once: bool) -> None:
        self.number, self.process, self.passage = number, process, passage
        self.joins_at_once = joins_at_once
        self.channel: Channel | None = None
        self.state: State | None = None
        self.began = asyncio.Event()
        self.joined = self.leaving = False
        self.pulse = Pulse()
        self.content: list[Any] = []
        self.start_time = time.monotonic()

    def __str__(self) -> str:
        return f"process {self.number} ({self.process.pid})"

    @property
    def takes_connections(self) -> bool:
        """Whether connections may go to it, and changes have to."""
        return self.joined and not self.leaving

    @property
    def load(self) -> tuple[bool, bool, int]:
        """What the next connection is chosen by: the least load gets it, and one that answers and is ready first."""
        assert self.state is not None, "it has joined"
        return self.pulse.falters, not self.state.ready, self.state.open + self.passage.passed - self.state.taken

    @property
    def counts(self) -> Families:
        """What it has counted, all that it told."""
        return keep_counts(parse_families(self.content))

    @property
    def shown_counts(self) -> Families:
        """What the server's metrics show of it: all, but only what it counted where it is not part of the server."""
        return parse_families(self.content) if self.takes_connections else self.counts

    def hangs(self, seconds: float) -> bool:
        """Whether it has begun, and was silent for so long."""
        return self.state is not None and self.pulse.silence > seconds

    def note_beat(self, content: list[Any] | None) -> None:
        """It goes on; content: its metrics, where they have changed."""
        self.pulse.note()
        self.content = content or self.content

    async def ask(self, name: str, value: Any = None) -> Any:
        """What it answers; raises ChannelClosed where it has ended."""
        if self.channel is None:
            raise ChannelClosed
        return await self.channel.ask(name, value)

    async def respond(self, request: Request) -> Response | None:
        """Its response to a request; None where it has ended."""
        try:
            fields = await self.ask("request", request.to_json())
        except ChannelClosed:
            return None
        return None if fields is None else Response.from_json(fields)

    async def respond_soon(self, request: Request) -> Response | None:
        """Its response to a request that takes no time; None where it does not answer, or falters: all would wait."""
        if self.pulse.falters:
            return None
        try:
            return await asyncio.wait_for(self.respond(request), ANSWER_SECONDS)
        except TimeoutError:
            return None

    async def read_counts(self) -> None:
        """Read its metrics; where it does not answer, or falters, those that were read last stay."""
        if self.pulse.falters:
            return
        try:
            content = await asyncio.wait_for(self.ask("metrics"), ANSWER_SECONDS)
        except (ChannelClosed, TimeoutError):
            return
        self.note_beat(content)

    def tell(self, name: str) -> None:
        """Tell it something that it need not answer."""
        if self.channel is not None:
            self.channel.tell(name)

    def close(self) -> list[socket.socket]:
        """Let go of what belongs to a process that has ended; returns the connections that it never had."""
        if self.channel is not None:
            self.channel.close()
        return self.passage.close()


def make_member_settings(settings: Settings, number: int) -> Settings:
    """The settings of one process: its share of the threads, and a folder of its own for contexts that are kept."""
    threads = settings.threads or max(1, count_available_threads() // settings.processes)
    folder = None if settings.keep_contexts is None else settings.keep_contexts / str(number)
    return settings.model_copy(update={"threads": threads, "keep_contexts": folder})


async def start_member(
    context: ForkServerContext, number: int, settings: Settings, tables: Path, handle: Handle, *, joins_at_once: bool
) -> Member:
    """Start a process. handle: answers its questions. tables: the folder of shared tables."""
    (control, other_control), (passage, other_passage) = socket.socketpair(), make_passage()
    with other_control, other_passage:
        arguments = number, settings, other_control, other_passage, tables
        process = context.Process(target=run_worker, args=arguments, name=f"shortlist-{number}")
        await asyncio.to_thread(process.start)  # the first takes a second, as it imports what all have
    control.setblocking(False)
    member = Member(number, process, Passage(passage), joins_at_once=joins_at_once)
    member.channel = await Channel.open(control, lambda name, value: handle(member, name, value))
    return member


def start_fork_server() -> None:
    """Start what processes are forked from: signals to all must not end it, or all would seem to have ended."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in GROUP_SIGNALS}  # which it inherits
    try:
        forkserver.ensure_running()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
