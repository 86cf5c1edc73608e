"""Connections on their way to another process."""

from __future__ import annotations

import asyncio
import socket

from shortlist.fleet.processes.connections import Acceptor, Passage, make_passage, take_connections


def run(test):
    """Run `test(ours, theirs, client, connection)` in a loop: both ends of a passage, and of a connection."""

    async def work():
        (end, theirs), (client, connection) = make_passage(), socket.socketpair()
        client.setblocking(False)
        ours = Passage(end)
        with theirs, client, connection:
            await asyncio.wait_for(test(ours, theirs, client, connection), 10)

    asyncio.run(work())


async def read(client):
    return await asyncio.get_running_loop().sock_recv(client, 5)


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
