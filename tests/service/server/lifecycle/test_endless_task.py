"""What becomes of a server one of whose tasks fails."""

from __future__ import annotations

import asyncio
import logging

from shortlist.server.lifecycle.endless_task import start_endless
from shortlist.server.lifecycle.model_changes import ModelChanges
from shortlist.server.lifecycle.releases import Change


async def fail():
    raise OSError("no disk")


def test_a_task_that_fails_is_logged_and_told(caplog):
    faults = []

    async def run():
        cancelled = start_endless(asyncio.sleep(60), lambda: faults.append("cancelled"))
        start_endless(fail(), lambda: faults.append("failed"))
        await asyncio.sleep(0.01)
        cancelled.cancel()
        await asyncio.sleep(0.01)

    asyncio.run(run())
    assert faults == ["failed"]
    assert "OSError: no disk" in caplog.text


class BrokenReleases:
    """Cannot look at the first of its two models."""

    def __init__(self):
        self.stop_event = asyncio.Event()
        self.names = []

    def list_models(self):
        return ["a", "b"]

    def update(self, name):
        self.names.append(name)
        if name == "a":
            raise OSError("no disk")
        return Change()


def test_what_nobody_foresaw_of_one_model_stops_no_other(caplog):
    releases, changes = BrokenReleases(), []

    async def run():
        return await ModelChanges(releases, changes.append, None).update_all()

    with caplog.at_level(logging.ERROR):
        total = asyncio.run(run())
    assert releases.names == ["a", "b"]
    assert len(changes) == 2
    assert [str(failure) for failure in total.failures] == ["the versions of model 'a' could not be looked at: no disk"]
    assert "'a' could not be looked at" in caplog.text
