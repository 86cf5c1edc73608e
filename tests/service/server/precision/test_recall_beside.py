"""Contexts that clients have evaluated: beside the rows that are asked again, and only while somebody waits."""

from __future__ import annotations

import asyncio
import threading

import pytest
from shortlist.server.precision import monitor as module
from shortlist.server.precision.monitor import Monitor
from shortlist.server.settings import Settings
from starlette.requests import ClientDisconnect

WAIT_SECONDS = 30.0


@pytest.fixture
def monitor():
    monitor = Monitor(Settings(), lambda: [], lambda: False, None, None)
    yield monitor
    asyncio.run(monitor.close())


async def stay():
    """What `receive` does while a client waits."""
    await asyncio.Event().wait()


def test_an_evaluation_leaves_the_thread_of_served_rows_alone(monitor, monkeypatch):
    end = threading.Event()
    monkeypatch.setattr(module, "evaluate", lambda *_, progress: end.wait(WAIT_SECONDS))

    async def scenario():
        evaluation = asyncio.ensure_future(monitor.evaluate(None, None, stay))
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.run_in_executor(monitor.thread, lambda: 5), WAIT_SECONDS / 2) == 5
        assert not evaluation.done()
        end.set()
        assert await evaluation

    asyncio.run(scenario())
    assert monitor.evaluations == 0


def test_an_evaluation_ends_soon_after_its_client_left(monitor, monkeypatch):
    begun, parts = threading.Event(), []

    def evaluate(head, contexts, progress):
        begun.set()
        while len(parts) < 10_000:
            parts.append(threading.Event().wait(0.002))
            progress(len(parts), 10_000)

    monkeypatch.setattr(module, "evaluate", evaluate)

    async def leave():
        await asyncio.to_thread(begun.wait, WAIT_SECONDS)

    async def scenario():
        with pytest.raises(ClientDisconnect):
            await monitor.evaluate(None, None, leave)

    asyncio.run(scenario())
    assert len(parts) < 10_000
    assert monitor.evaluations == 0
