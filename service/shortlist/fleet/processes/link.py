"""A process's link to its supervisor: what it asks of it, tells it, and does for it."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from .beats import keep_beating
from .channel import Channel, ChannelClosed
from .exchange import Request, Response
from .tasks import Tasks

LOADING_SECONDS = 0.005  # between looks at a process that is not ready: others get 503 until the supervisor knows

log = logging.getLogger(__name__)

Duty = Callable[[Any], Awaitable[Any]]


class State(NamedTuple):
    """What a supervisor wants to know of a process.

    ready: whether it could answer requests to all models. open, taken: connections that are open, and all so far.
    """

    ready: bool
    open: int
    taken: int


class Link:
    """The link of one process. duties: what the supervisor may ask of it, by name."""

    def __init__(self, duties: Mapping[str, Duty]) -> None:
        self.duties = duties
        self.channel: Channel | None = None

    async def run(self, sock: socket.socket, read_state: Callable[[], State], seconds: float) -> None:
        """Talk over `sock` until the supervisor has ended; tell it every change of state within so many seconds.

        And tell it every second that this process goes on, with what `metrics` of its duties gives.
        """
        self.channel = await Channel.open(sock, self.do_duty)
        tasks = Tasks()
        tasks.start(self.tell_states(self.channel, read_state, seconds))
        tasks.start(keep_beating(self.channel.tell, lambda: self.do_duty("metrics", None)))
        try:
            await self.channel.run()
        finally:
            tasks.cancel()

    async def tell_states(self, channel: Channel, read_state: Callable[[], State], seconds: float) -> None:
        """Tell the state whenever it has changed, in an endless loop."""
        last: State | None = None
        while True:
            state = read_state()
            if state != last:
                channel.tell("state", list(state))
                last = state
            await asyncio.sleep(seconds if state.ready else min(seconds, LOADING_SECONDS))

    async def do_duty(self, name: str, value: Any) -> Any:
        """Do what the supervisor asks."""
        return await self.duties[name](value)

    def tell(self, name: str, value: Any = None) -> None:
        """Tell the supervisor something, where it is there."""
        if self.channel is not None:
            self.channel.tell(name, value)

    async def ask(self, name: str, value: Any = None) -> Any:
        """What the supervisor answers; raises ChannelClosed."""
        if self.channel is None:
            raise ChannelClosed
        return await self.channel.ask(name, value)

    async def change(self, request: Request) -> Response:
        """The response to a change that all processes do; raises ChannelClosed."""
        return Response.from_json(await self.ask("change", request.to_json()))

    async def ask_others(self, request: Request) -> list[Response]:
        """The responses of all other processes; raises ChannelClosed."""
        return [Response.from_json(each) for each in await self.ask("others", request.to_json())]

    async def render_metrics(self) -> bytes:
        """The metrics of all processes as text; raises ChannelClosed."""
        text: str = await self.ask("metrics")
        return text.encode()
