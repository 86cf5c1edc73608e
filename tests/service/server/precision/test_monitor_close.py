"""A monitor is closed in time, whatever it measures."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future

import pytest
from shortlist.errors import NotReady
from shortlist.server.precision import monitor as monitors
from shortlist.server.precision.monitor import Monitor
from shortlist.server.settings import Settings


def make_monitor(folder):
    settings = Settings(repository=folder, keep_contexts=folder, precision_share=1)
    return Monitor(settings, list, bool, print, print)


def test_a_close_does_not_wait_for_a_long_measurement(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(monitors, "CLOSE_SECONDS", 0.1)
    end = threading.Event()

    async def close():
        monitor = make_monitor(tmp_path)
        monitor.thread.submit(end.wait, 30)
        start = time.monotonic()
        await monitor.close()
        return time.monotonic() - start

    try:
        assert asyncio.run(close()) < 10
    finally:
        end.set()
    assert "are not kept" in caplog.text


def test_contexts_are_written_at_a_close(tmp_path, monkeypatch):
    written = []

    async def close():
        monitor = make_monitor(tmp_path)
        monkeypatch.setattr(monitor.folder, "write", lambda: written.append(True))
        await monitor.close()

    asyncio.run(close())
    assert written == [True]


def test_an_evaluation_ends_after_the_rows_that_it_is_at(tmp_path, monkeypatch):
    calls = []

    def evaluate(head, contexts, progress):
        calls.append(head)
        for done in range(100):
            progress(done, 100)
            monitor.is_closed = True
        raise AssertionError("it was not stopped")

    async def run():
        return make_monitor(tmp_path)

    monitor = asyncio.run(run())
    monkeypatch.setattr(monitors, "evaluate", evaluate)
    for _ in range(2):
        with pytest.raises(NotReady, match="the server stops"):
            monitor.evaluate_rows(Future(), "head", [])
    assert calls == ["head"]
