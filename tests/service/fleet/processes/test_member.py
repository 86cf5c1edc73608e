"""What the supervisor asks of one process, be it silent."""

from __future__ import annotations

import asyncio

import pytest
from shortlist.fleet.processes import member
from shortlist.fleet.processes.exchange import Request
from shortlist.fleet.processes.member import Member

READINESS = Request("GET", "/readyz", b"", [], b"", ("", 0))


class SilentChannel:
    """A channel over which nothing comes back. asked: what was asked over it."""

    def __init__(self):
        self.asked = []

    async def ask(self, name, value):
        self.asked.append(name)
        await asyncio.Event().wait()


@pytest.fixture
def silent():
    silent = Member(0, None, None, joins_at_once=True)
    silent.channel = SilentChannel()
    return silent


def read(member):
    async def run():
        response = await member.respond_soon(READINESS)
        await member.read_counts()
        return response

    return asyncio.run(asyncio.wait_for(run(), 1))


def test_who_does_not_answer_in_time_is_left_out(silent, monkeypatch):
    monkeypatch.setattr(member, "ANSWER_SECONDS", 0.05)
    assert read(silent) is None
    assert silent.channel.asked == ["request", "metrics"]


def test_who_falters_is_not_waited_for(silent):
    """Else a process that hangs would have every probe and scrape of the server wait for it."""
    silent.pulse.last -= 10
    assert read(silent) is None
    assert silent.channel.asked == []
