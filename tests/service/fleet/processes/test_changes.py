"""What the supervisor keeps of changes, and sends to a process that comes later."""

from __future__ import annotations

import asyncio
import json

import pytest
from shortlist.fleet.processes.changes import Changes
from shortlist.fleet.processes.exchange import Request, Response
from shortlist.fleet.processes.supervisor import Supervisor
from shortlist.server.settings import Settings


class Member:
    """A process that has some lists. answers: the status of its responses to changes; None where it has ended."""

    joined = False
    takes_connections = property(lambda self: self.joined)

    def __init__(self, *lists, status=200):
        self.lists, self.status, self.changes = lists, status, []

    async def respond(self, request):
        self.changes.append(request.path)
        return Response(self.status, [], b'{"error": "it is full"}')

    async def ask(self, name, value):
        self.changes.append(name)

    async def respond_soon(self, request):
        assert (request.method, request.path) == ("GET", "/v1/lists")
        if self.lists == (None,):
            return None
        return Response(200, [], json.dumps({"tables": [{"name": name} for name in self.lists]}).encode())


def put(name):
    return Request("PUT", f"/v1/lists/{name}", b"", [], b"{}", ("", 0))


def list_repeated(*others):
    """The changes that a new process is sent, where three lists were registered with members who still have these."""
    new = Member()

    async def run():
        changes = Changes()
        for name in "abc":
            await changes.change(put(name), Member("a", "b", "c"), list)
        await changes.repeat(new, lambda: others)

    asyncio.run(run())
    assert new.joined
    return [path[-1] for path in new.changes]


def test_lists_that_no_process_has_any_more_are_not_repeated():
    assert list_repeated(Member("a"), Member("c")) == ["a", "c"]


def test_lists_of_a_process_that_does_not_answer_are():
    assert list_repeated(Member("a"), Member(None)) == list_repeated() == ["a", "b", "c"]


def test_lists_are_forgotten_as_others_come():
    changes = Changes()
    for name in "abc":
        asyncio.run(changes.change(put(name), Member(name), list))
    assert [request.path for request in changes.journal.list_requests()] == ["/v1/lists/c"]


def test_what_is_not_repeated_is_logged(caplog):
    changes, new = Changes(), Member(status=413)
    asyncio.run(changes.change(put("a"), Member("a"), list))
    asyncio.run(changes.repeat(new, list))
    assert "did not repeat PUT /v1/lists/a (413): " in caplog.text
    assert "it is full" in caplog.text


def load_with(status):
    """The response of all processes to a load that the first answers with a status, and what the second did."""
    changes, second = Changes(), Member("a")
    load = Request("POST", "/v2/repository/models/lm/load", b"", [], b"", ("", 0))
    response = asyncio.run(changes.change(load, Member("a", status=status), lambda: [second]))
    return response.status, second.changes


def test_a_load_of_which_some_versions_failed_is_done_by_all():
    """The others would answer by other versions for good, or not at all where the model was unloaded."""
    assert load_with(500) == (500, ["/v2/repository/models/lm/load"])


@pytest.mark.parametrize("status", [404, 429])
def test_a_load_that_one_process_refuses_no_other_is_asked_for(status):
    assert load_with(status) == (status, [])


@pytest.mark.parametrize(("name", "value"), [("change", put("a").to_json()), ("rolled_back", ["lm", 1, "it is worse"])])
def test_who_joins_while_a_change_waits_for_its_turn_does_it_too(tmp_path, name, value):
    async def run():
        supervisor, first, second = Supervisor(Settings(repository=tmp_path), tmp_path), Member("a"), Member("a")
        supervisor.members, first.joined = [first, second], True
        async with supervisor.changes.turn:
            change = asyncio.create_task(supervisor.handle(first, name, value))
            await asyncio.sleep(0)
            second.joined = True
        await change
        return second.changes

    assert asyncio.run(run()) == ["/v1/lists/a" if name == "change" else "roll_back"]
