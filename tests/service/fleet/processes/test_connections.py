"""Connections on their way to another process."""

from __future__ import annotations

import asyncio
import socket

import pytest
from shortlist.fleet.processes.connections import Acceptor, Passage, make_passage, take_connections


@pytest.fixture
def loop():
    """A loop that runs while a test does: its callbacks alone do not."""
    with asyncio.Runner() as runner:
        asyncio.events._set_running_loop(runner.get_loop())
        yield runner.get_loop()
        asyncio.events._set_running_loop(None)


@pytest.fixture
def passage(loop):
    ours, theirs = make_passage()
    with theirs:
        yield Passage(ours), theirs
        ours.close()


def test_a_connection_is_passed_on_and_stays_open(passage):
    ours, theirs = passage
    client, connection = socket.socketpair()
    with client:
        with connection:
            assert ours.send(connection)
        (other,), more = take_connections(theirs)
        with other:
            assert more
            other.send(b"hello")
            assert client.recv(5) == b"hello"
        assert ours.close() == []


def test_nothing_waits(passage):
    assert take_connections(passage[1]) == ([], True)


def test_one_that_has_ended_takes_none(passage):
    ours, theirs = passage
    theirs.close()
    with socket.socket() as connection:
        assert not ours.send(connection)
    assert ours.close() == []


def test_what_a_process_never_had_that_has_ended_is_still_open(passage):
    ours, theirs = passage
    pairs = [socket.socketpair() for _ in range(3)]
    for number, (_, connection) in enumerate(pairs):
        with connection:
            assert ours.send(connection)
        if number == 1:
            for taken in take_connections(theirs)[0]:
                taken.close()
    theirs.close()
    (kept,) = ours.close()
    with kept:
        kept.send(b"hello")
        assert pairs[2][0].recv(5) == b"hello"
    assert [client.recv(1) for client, _ in pairs[:2]] == [b"", b""]
    for client, _ in pairs:
        client.close()


def test_a_connection_is_closed_when_the_process_closes_it():
    async def run():
        (ours, theirs), (client, connection) = make_passage(), socket.socketpair()
        client.setblocking(False)
        passage = Passage(ours)
        with client, theirs:
            with connection:
                passage.send(connection)
            for taken in take_connections(theirs)[0]:
                taken.close()
            assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
            passage.close()

    asyncio.run(asyncio.wait_for(run(), 10))


def test_one_whose_supervisor_has_ended_takes_what_was_passed(passage):
    ours, theirs = passage
    with socket.socket() as connection:
        ours.send(connection)
        for kept in ours.close():
            kept.close()
        (other,), more = take_connections(theirs)
        other.close()
        assert not more


def test_what_nobody_can_take_yet_waits():
    refusals = iter([False, False, True])
    passed = []

    def pass_on(connection):
        passed.append(next(refusals))
        return passed[-1]

    async def run():
        acceptor = Acceptor(pass_on)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            acceptor.start([listener])
            with socket.create_connection(listener.getsockname()):
                while passed != [False, False, True]:
                    await asyncio.sleep(0.005)
            acceptor.stop()

    asyncio.run(asyncio.wait_for(run(), 10))


def test_what_waits_to_be_accepted_is_passed_on_at_the_end():
    passed = []

    async def run(listener):
        acceptor = Acceptor(lambda connection: passed.append(connection.fileno()) is None)
        acceptor.start([listener])
        await asyncio.sleep(0)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        acceptor.stop()
        for client in clients:
            client.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        asyncio.run(run(listener))
    assert len(passed) == 3
