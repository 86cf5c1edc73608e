"""Questions and answers between two ends."""

from __future__ import annotations

import asyncio
import socket

import pytest
import uvloop
from shortlist.fleet.processes.channel import Channel, ChannelClosed


def talk(work, handle=None):
    """Run `work(one, other)` over two ends that both answer by `handle`."""

    async def echo(name, value):
        return [name, value]

    async def run():
        ends = socket.socketpair()
        one, other = [await Channel.open(end, handle or echo) for end in ends]
        reading = [asyncio.create_task(channel.run()) for channel in (one, other)]
        try:
            return await asyncio.wait_for(work(one, other), 10)
        finally:
            one.close()
            other.close()
            await asyncio.gather(*reading)

    return asyncio.run(run())


def test_each_side_asks_and_answers():
    async def work(one, other):
        return await asyncio.gather(one.ask("a", {"x": 1}), other.ask("b"), one.ask("c", "text" * 100_000))

    first, second, third = talk(work)
    assert first == ["a", {"x": 1}]
    assert second == ["b", None]
    assert third == ["c", "text" * 100_000]


def test_answers_come_in_any_order():
    async def handle(name, value):
        await asyncio.sleep(value)
        return name

    async def work(one, other):
        slow = asyncio.create_task(one.ask("slow", 0.2))
        await asyncio.sleep(0)
        return await one.ask("quick", 0), slow.done(), await slow

    assert talk(work, handle) == ("quick", False, "slow")


def test_who_waits_for_one_that_has_ended_is_told():
    async def handle(name, value):
        await asyncio.sleep(60)

    async def work(one, other):
        question = asyncio.create_task(one.ask("anything"))
        await asyncio.sleep(0.05)
        other.close()
        with pytest.raises(ChannelClosed):
            await question
        with pytest.raises(ChannelClosed):
            await one.ask("more")
        one.tell("nobody")

    talk(work, handle)


def test_one_that_has_just_ended_is_told_nothing():
    """uvloop refuses to write to a closed socket, of which the channel hears a little later."""

    async def work():
        end, other = socket.socketpair()
        with other:
            channel = await Channel.open(end, None)
            channel.writer.transport.abort()
            await asyncio.sleep(0.01)
            assert not channel.closed
            channel.tell("leaving")

    uvloop.run(asyncio.wait_for(work(), 10))


def test_an_error_is_answered_with_nothing(caplog):
    async def handle(name, value):
        raise ValueError("no")

    async def work(one, other):
        return await one.ask("anything")

    assert talk(work, handle) is None
    assert "'anything' of another process failed" in caplog.text


def test_the_end_of_a_process_amid_its_change_is_no_error_of_this_one(caplog):
    async def handle(name, value):
        raise ChannelClosed

    async def work(one, other):
        return await one.ask("change")

    assert talk(work, handle) is None
    assert caplog.text == ""
