"""What the supervisor does about a process that ends before it has begun."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace

import pytest
from shortlist.fleet.processes import supervisor as supervisor_module
from shortlist.fleet.processes.connections import Passage, make_passage
from shortlist.fleet.processes.member import Member
from shortlist.fleet.processes.supervisor import Supervisor
from shortlist.server.settings import Settings

KILLED = -9


def test_a_server_goes_on_where_a_process_is_killed_before_it_has_begun(tmp_path):
    async def run():
        supervisor = Supervisor(Settings(repository=tmp_path, processes=1), tmp_path)
        end, other = make_passage()  # the supervisor closes its own
        process = SimpleNamespace(sentinel=other.fileno(), join=lambda: None, exitcode=KILLED, pid=1)
        replaced = []

        async def add_member(number, *, joins_at_once):
            member = Member(number, process, Passage(end), joins_at_once=joins_at_once)
            supervisor.members.append(member)
            asyncio.get_running_loop().call_soon(supervisor.note_end, member)
            return member

        async def replace(member):
            replaced.append(member.number)

        supervisor.add_member, supervisor.replace = add_member, replace
        await asyncio.wait_for(supervisor.begin(), 5)  # then it listens
        await asyncio.sleep(0)
        other.close()
        return replaced

    assert asyncio.run(run()) == [0]


@pytest.mark.parametrize("stop", ["drain", "interrupt"])
def test_a_process_that_begins_while_the_server_is_told_to_end_ends_by_itself(tmp_path, monkeypatch, stop):
    """It was killed at once, with an error in the log that it had not ended in time."""

    async def run():
        supervisor = Supervisor(Settings(repository=tmp_path, processes=2, drain_delay=0.0), tmp_path)
        told, killed = [], []
        process = SimpleNamespace(sentinel=sentinel, join=lambda: None, exitcode=0, pid=1)
        process.kill = lambda: killed.append(1)

        async def start_member(*_, joins_at_once):
            getattr(supervisor, stop)()
            member = Member(0, process, Passage(end), joins_at_once=joins_at_once)
            member.channel = SimpleNamespace(tell=told.append, run=lambda: asyncio.sleep(0), close=lambda: None)
            asyncio.get_running_loop().call_later(0.1, os.close, lifeline)
            return member

        monkeypatch.setattr(supervisor_module, "start_member", start_member)
        monkeypatch.setattr(supervisor_module, "start_fork_server", lambda: None)
        return await asyncio.wait_for(supervisor.run(), 5), told, killed, supervisor.members

    (end, other), (sentinel, lifeline) = make_passage(), os.pipe()
    assert asyncio.run(run()) == (0, ["interrupt"], [], [])
    other.close()
    os.close(sentinel)


@pytest.mark.parametrize("error", [OSError(24, "Too many open files"), EOFError("unexpected EOF")])
def test_a_process_that_the_system_does_not_start_is_tried_again(tmp_path, monkeypatch, error):
    """The server went on with a process less, for ever."""
    monkeypatch.setattr(supervisor_module, "MAX_REST_SECONDS", 0.01)
    errors, started = [error], []

    async def run():
        supervisor = Supervisor(Settings(repository=tmp_path, processes=1), tmp_path)
        ended = SimpleNamespace(number=3, start_time=0.0, process=SimpleNamespace(exitcode=KILLED))

        async def add_member(number, *, joins_at_once):
            if errors:
                raise errors.pop()
            started.append((number, joins_at_once))

        supervisor.add_member = add_member
        await asyncio.wait_for(supervisor.replace(ended), 5)
        return supervisor.replacements

    assert asyncio.run(run()) == 1
    assert started == [(3, False)]
