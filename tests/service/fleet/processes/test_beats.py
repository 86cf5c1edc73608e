"""Beats of a process, and how the supervisor watches them."""

import asyncio
import contextlib

import pytest
from shortlist.fleet.processes import beats
from shortlist.fleet.processes.beats import Pulse, keep_beating, watch_beats


@pytest.fixture(autouse=True)
def quick_beats(monkeypatch):
    monkeypatch.setattr(beats, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(beats, "FALTERING_SECONDS", 0.2)


def run_for(seconds, work):
    async def run():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(work, seconds)

    asyncio.run(run())


def test_beats_tell_counts_where_they_have_changed():
    told, counts = [], iter([[1], [1], [2], [2], [2]])

    async def read_counts():
        return next(counts, [3])

    run_for(0.5, keep_beating(lambda name, value: told.append((name, value)), read_counts))
    assert {name for name, _ in told} == {"beat"}
    assert [value for _, value in told[:6]] == [[1], None, [2], None, None, [3]]
    assert {value for _, value in told[6:]} == {None}


def test_a_silent_process_falters():
    pulse = Pulse()
    assert not pulse.falters
    pulse.last -= 1
    assert pulse.falters
    assert pulse.silence > 1
    pulse.note()
    assert not pulse.falters


def test_checks_go_on():
    checks = []
    run_for(0.5, watch_beats(list, lambda: checks.append(1)))
    assert len(checks) > 3


def test_who_was_stopped_itself_has_heard_nobody(monkeypatch):
    pulse, checks = Pulse(), []
    pulse.last -= 5
    monkeypatch.setattr(beats, "FALTERING_SECONDS", -1.0)  # every sleep lasts too long
    run_for(0.2, watch_beats(lambda: [pulse], lambda: checks.append(1)))
    assert pulse.silence < 1
    assert checks == []
