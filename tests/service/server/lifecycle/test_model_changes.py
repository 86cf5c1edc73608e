"""What changes releases does so in one thread, one change after the other."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time

from shortlist.server.lifecycle.model_changes import ModelChanges
from shortlist.server.lifecycle.releases import Change

SECONDS = 5.0  # after which a test has failed


class SlowReleases:
    """Notes what is called, by which thread, and whether something else ran meanwhile."""

    def __init__(self):
        self.stop_event = threading.Event()
        self.calls, self.threads, self.running, self.overlaps = [], set(), 0, 0

    def note(self, call):
        self.running += 1
        self.overlaps += self.running > 1
        self.calls.append(call)
        self.threads.add(threading.get_ident())
        time.sleep(0.02)
        self.running -= 1

    def list_models(self):
        self.note("list")
        return ["lm"]

    def update(self, name):
        self.note("update")
        return Change()

    def retry_failures(self):
        self.note("retry")


async def wait_for_calls(releases, count):
    end = time.monotonic() + SECONDS
    while len(releases.calls) < count:
        assert time.monotonic() < end, releases.calls
        await asyncio.sleep(0.005)


def test_failures_are_forgotten_between_changes_and_by_their_thread():
    """The dict of failures is read by a change that runs; it may not lose entries meanwhile."""
    releases = SlowReleases()

    async def run():
        changes = ModelChanges(releases, lambda change: None, None)
        first = asyncio.ensure_future(changes.update_all())
        watch = asyncio.ensure_future(changes.watch())
        await wait_for_calls(releases, 2)
        changes.look_again()
        await first
        await wait_for_calls(releases, 5)
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch

    asyncio.run(run())
    assert releases.calls == ["list", "update", "retry", "list", "update"]
    assert releases.overlaps == 0
    assert releases.threads.isdisjoint({threading.get_ident()})
    assert len(releases.threads) == 1


def test_polls_do_not_try_failures_again():
    releases = SlowReleases()

    async def run():
        changes = ModelChanges(releases, lambda change: None, 0.01)
        watch = asyncio.ensure_future(changes.watch())
        await wait_for_calls(releases, 4)
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch

    asyncio.run(run())
    assert "retry" not in releases.calls
