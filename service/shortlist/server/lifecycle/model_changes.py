"""Changes of what is served: at the start, by polls and signals, and by request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import Callable
from functools import partial

from starlette.types import Receive

from shortlist.errors import BundleError
from shortlist.runtime.memory import give_back_memory
from shortlist.server.models import Model

from .load_queue import LoadQueue
from .releases import Change, Releases

log = logging.getLogger(__name__)

FREE_SECONDS = 0.5  # after the last version was freed; then its memory is given back


class ModelChanges:
    """Every change of what is served, one at a time.

    apply: called in the event loop with what each change came to. poll_seconds: between two looks at the repository,
    None for none but those that are asked for.
    """

    def __init__(self, releases: Releases, apply: Callable[[Change], None], poll_seconds: float | None) -> None:
        self.releases, self.apply_change, self.poll_seconds = releases, apply, poll_seconds
        self.queue = LoadQueue()
        self.wake = asyncio.Event()
        self.freeing: asyncio.TimerHandle | None = None

    async def update_all(self) -> Change:
        """Serve what the repository holds now; what is wrong with one model or version stops no other."""
        total = Change()
        for name in await self.queue.run(self.releases.list_models):
            if self.releases.stop_event.is_set():
                break
            change = self.apply(await self.queue.run(partial(self.update, name)))
            total.failures += change.failures
        return total

    async def retry_all(self) -> Change:
        """As `update_all`, with versions that failed before; these are known to the thread of changes alone."""
        await self.queue.run(self.releases.retry_failures)
        return await self.update_all()

    def update(self, name: str) -> Change:
        """Serve what the repository holds of one model now; takes seconds."""
        try:
            return self.releases.update(name)
        except Exception as error:  # not foreseen; the next look may do better
            log.exception("the versions of model '%s' could not be looked at", name)
            return Change(failures=[BundleError(f"the versions of model '{name}' could not be looked at: {error}")])

    async def watch(self) -> None:
        """Look again whenever that is asked for, and every so many seconds; in an endless loop."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wake.wait(), self.poll_seconds)
            is_asked = self.wake.is_set()
            self.wake.clear()
            try:
                await (self.retry_all() if is_asked else self.update_all())
            except Exception:  # not foreseen; the next look may do better
                log.exception("the repository could not be looked at")

    def look_again(self) -> None:
        """Serve soon what the repository holds now, versions that failed before among it."""
        self.wake.set()

    async def load(self, name: str, receive: Receive) -> None:
        """Load every version of a model that is to be served; raises NotFound, BundleError, Overloaded.

        receive: of the client's request; one who leaves before its turn gives it up, and ClientDisconnect is raised.
        """
        change = self.apply(await self.queue.run_for_client(partial(self.releases.reload, name), receive))
        if change.failures:
            raise change.failures[0]

    async def unload(self, name: str, receive: Receive) -> list[Model]:
        """Serve no version of a model, and free its memory, until it is loaded again; errors as of `load`."""
        return await self.queue.run_for_client(partial(self.releases.unload, name), receive)

    async def roll_back(self, model: Model, reason: str) -> bool:
        """Serve a version no more that turned out worse than it promised, and the one before it in its place.

        Returns whether that was done: it is not where no other version answers.
        """
        return bool(self.apply(await self.queue.run(partial(self.releases.roll_back, model, reason))).rolled_back)

    def apply(self, change: Change) -> Change:
        """Pass on a change, and watch for the end of what is served no more."""
        loop = asyncio.get_running_loop()
        for model in change.retired:
            weakref.finalize(model, call_in_loop, loop, self.free_soon).atexit = False
        self.apply_change(change)
        return change

    def free_soon(self) -> None:
        """Give memory back once no more of it has become free for a while."""
        if self.freeing is not None:
            self.freeing.cancel()
        loop = asyncio.get_running_loop()
        self.freeing = loop.call_later(FREE_SECONDS, loop.run_in_executor, None, give_back_memory)


def call_in_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    """Call back in the event loop, unless that is closed."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(callback)
