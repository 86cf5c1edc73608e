"""Changes that all processes do, one change at a time, and one process after the other."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from shortlist.core.checks import cut
from shortlist.errors import BundleError, Overloaded
from shortlist.server.messages.responses import make_error_response

from .channel import ChannelClosed
from .exchange import Request, Response
from .journal import LISTS_PATH, LOAD_ENDING, Journal, has_ending
from .member import Member

MAX_WAITING_CHANGES = 16  # asked by clients
RETRY_SECONDS = 5
LISTS_REQUEST = Request("GET", LISTS_PATH, b"", [], b"", ("", 0))

ListMembers = Callable[[], Sequence[Member]]  # called in a change's turn: who joins meanwhile is among them

log = logging.getLogger(__name__)


class Changes:
    """The changes of one server."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.waiting = 0  # of clients
        self.journal = Journal()

    async def change(self, request: Request, member: Member, list_others: ListMembers) -> Response:
        """Have `member`, which got the request, do it, and then the others.

        Returns the first response of a process that failed, else that of `member`. Raises ChannelClosed.
        """
        if self.waiting >= MAX_WAITING_CHANGES:
            return refuse_change(self.waiting)
        self.waiting += 1
        try:
            async with self.turn:
                return await self.change_all(request, member, list_others())
        finally:
            self.waiting -= 1

    async def change_all(self, request: Request, member: Member, others: Sequence[Member]) -> Response:
        """As `change`, once its turn has come; the others are not asked for what `member` refuses."""
        response = await member.respond(request)
        if response is None:
            raise ChannelClosed
        if not (response.is_success or is_partly_done(request, response)):
            return response
        await asyncio.to_thread(self.journal.note, request, response)
        responses = [response, *[await other.respond(request) for other in others]]
        await self.forget_lists([member, *others])
        return next((each for each in responses if each is not None and not each.is_success), response)

    async def forget_lists(self, members: Sequence[Member]) -> None:
        """Forget the lists that none of these processes has any more; none where one of them does not say."""
        if not self.journal.has_lists or not members:
            return
        responses = await asyncio.gather(*(member.respond_soon(LISTS_REQUEST) for member in members))
        tables = [orjson.loads(each.body)["tables"] for each in responses if each is not None and each.is_success]
        if len(tables) == len(members):
            self.journal.keep_lists({table["name"] for part in tables for table in part})

    async def repeat(self, member: Member, list_others: ListMembers) -> None:
        """Have a new process do what was changed so far; from then on it takes connections and changes."""
        async with self.turn:
            await self.forget_lists(list_others())
            for request in self.journal.list_requests():
                note_repetition(member, request, await member.respond(request))
            with contextlib.suppress(ChannelClosed):
                for fields in list(self.journal.roll_backs.values()):
                    await member.ask("roll_back", fields)
            member.joined = True

    async def roll_back(self, fields: list[Any], list_others: ListMembers) -> None:
        """Have processes roll a version back that one of them has, and those that come later."""
        self.journal.note_roll_back(fields)
        await self.ask_each("roll_back", fields, list_others)

    async def ask_each(self, name: str, value: Any, list_members: ListMembers) -> None:
        """Have processes do something one after the other, so that only one at a time holds two versions."""
        async with self.turn:
            for member in list_members():
                with contextlib.suppress(ChannelClosed):
                    await member.ask(name, value)


def is_partly_done(request: Request, response: Response) -> bool:
    """Whether versions may be served now though others of the same model could not be loaded."""
    return has_ending(request.path, (LOAD_ENDING,)) and response.status == BundleError.status


def note_repetition(member: Member, request: Request, response: Response | None) -> None:
    """Log that a new process would not do what was changed before it began."""
    if response is not None and not response.is_success:
        reason = cut(response.body.decode(errors="replace"))
        log.error("%s did not repeat %s %s (%d): %s", member, request.method, request.path, response.status, reason)


async def ask_all(request: Request, members: Sequence[Member]) -> list[Any]:
    """The responses of processes to a request that takes no time, as they are sent to another process."""
    responses = await asyncio.gather(*(member.respond_soon(request) for member in members))
    return [response.to_json() for response in responses if response is not None]


def refuse_change(waiting: int) -> Response:
    """The response to one change too many."""
    error = Overloaded(f"{waiting} changes wait already: ask again in {RETRY_SECONDS} s", retry_after=RETRY_SECONDS)
    response = make_error_response(error)
    return Response(response.status, response.headers, response.content)
