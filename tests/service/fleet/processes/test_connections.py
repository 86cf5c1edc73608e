"""Connections on their way to another process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import socket

import pytest
from shortlist.errors import Unsupported
from shortlist.fleet.processes.connections import (
    MAX_KEPT,
    TURN_CONNECTIONS,
    Acceptor,
    Passage,
    make_passage,
    take_connections,
)


def run(test):
    """Run `test(ours, theirs, client, connection)` in a loop: both ends of a passage, and of a connection."""

    async def work():
        (end, theirs), (client, connection) = make_passage(), socket.socketpair()
        client.setblocking(False)
        ours = Passage(end)
        with theirs, client, connection:
            await asyncio.wait_for(test(ours, theirs, client, connection), 10)

    asyncio.run(work())


def test_a_system_without_such_sockets_serves_by_one_process(monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")

    monkeypatch.setattr(socket, "socketpair", refuse)
    with pytest.raises(Unsupported, match="leave out --processes"):
        make_passage()


async def read(client):
    return await asyncio.get_running_loop().sock_recv(client, 5)


@contextlib.contextmanager
def no_more_files():
    """No file can be opened meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_connection_is_passed_on_and_closed_when_the_process_closes_it():
    async def test(ours, theirs, client, connection):
        assert take_connections(theirs) == ([], True)
        assert ours.send(connection)
        connection.close()
        (other,), more = take_connections(theirs)
        assert more
        other.send(b"hello")
        assert await read(client) == b"hello"
        other.close()
        assert await read(client) == b""
        assert ours.close() == []

    run(test)


def test_one_that_has_ended_takes_none():
    async def test(ours, theirs, client, connection):
        theirs.close()
        assert not ours.send(connection)
        assert ours.close() == []

    run(test)


def test_what_a_process_never_had_that_has_ended_is_still_open():
    async def test(ours, theirs, client, connection):
        assert ours.send(connection)
        (first,), _ = take_connections(theirs)
        first.close()
        assert ours.send(connection)
        connection.close()
        theirs.close()
        (kept,) = ours.close()
        with kept:
            kept.send(b"hello")
            assert await read(client) == b"hello"

    run(test)


def close_all(connections):
    for connection in connections:
        connection.close()
    return len(connections)


def test_no_answer_is_lost_while_more_connections_come_than_answers_fit():
    """After a burst the supervisor held connections open that their process had closed: their clients waited."""

    async def test(ours, theirs, client, connection):
        for _ in range(1000):  # in one turn of the event loop
            assert ours.send(connection)
            close_all(take_connections(theirs)[0])
        ours.note_taken()
        assert close_all(ours.close()) == 0

    run(test)


def test_so_many_connections_may_be_on_their_way_to_a_process():
    async def test(ours, theirs, client, connection):
        assert sum(ours.send(connection) for _ in range(2 * MAX_KEPT)) == len(ours.kept) == MAX_KEPT
        assert close_all(take_connections(theirs)[0]) == TURN_CONNECTIONS
        assert ours.send(connection)
        assert close_all(ours.close()) == MAX_KEPT - TURN_CONNECTIONS + 1

    run(test)


def test_a_supervisor_without_files_passes_nothing_on_until_it_has_some():
    async def test(ours, theirs, client, connection):
        with no_more_files():
            assert not ours.send(connection)
        assert take_connections(theirs) == ([], True)
        assert ours.send(connection)
        (other,), _ = take_connections(theirs)
        other.close()
        assert (ours.passed, ours.close()) == (1, [])

    run(test)


def test_a_connection_that_a_process_has_no_file_for_is_closed_and_not_its_load():
    async def test(ours, theirs, client, connection):
        assert ours.send(connection)
        connection.close()
        with no_more_files():
            assert take_connections(theirs) == ([], True)
        assert await read(client) == b""
        assert (ours.passed, ours.close()) == (0, [])

    run(test)


def test_a_process_takes_some_connections_at_a_time():
    async def test(ours, theirs, client, connection):
        for _ in range(TURN_CONNECTIONS + 1):
            assert ours.send(connection)
        for count in (TURN_CONNECTIONS, 1):
            taken, more = take_connections(theirs)
            assert (len(taken), more) == (count, True)
            for each in taken:
                each.close()
        assert ours.close() == []

    run(test)


def test_one_whose_supervisor_has_ended_takes_what_was_passed():
    async def test(ours, theirs, client, connection):
        ours.send(connection)
        for kept in ours.close():
            kept.close()
        (other,), more = take_connections(theirs)
        other.close()
        assert not more

    run(test)


def test_what_nobody_can_take_yet_waits():
    refusals = iter([False, False, True])
    passed = []

    def pass_on(connection):
        passed.append(next(refusals))
        return passed[-1]

    async def work():
        acceptor = Acceptor(pass_on)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            acceptor.start([listener])
            with socket.create_connection(listener.getsockname()):
                while passed != [False, False, True]:
                    await asyncio.sleep(0.005)
            acceptor.stop()

    asyncio.run(asyncio.wait_for(work(), 10))


def test_what_waits_to_be_accepted_is_passed_on_at_the_end():
    passed = []

    async def work(listener):
        acceptor = Acceptor(lambda connection: passed.append(connection.fileno()) is None)
        acceptor.start([listener])
        await asyncio.sleep(0)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(3)]
        acceptor.stop()
        for client in clients:
            client.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        asyncio.run(work(listener))
    assert len(passed) == 3
