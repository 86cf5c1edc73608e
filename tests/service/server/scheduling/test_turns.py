"""Turns: one at a time, clients in turn, and a rest after each."""

from __future__ import annotations

import asyncio

import pytest
from shortlist.errors import Overloaded
from shortlist.server.scheduling.turns import Turns


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario, 30))


async def work(turns, client, order, seconds=0.0):
    async with turns.turn(client):
        order.append(client)
        await asyncio.sleep(seconds)


def test_one_works_at_a_time():
    async def scenario():
        turns, working, most = Turns(64), 0, 0

        async def count(client):
            nonlocal working, most
            async with turns.turn(client):
                working += 1
                most = max(most, working)
                await asyncio.sleep(0.001)
                working -= 1

        await asyncio.gather(*(count(str(number % 5)) for number in range(30)))
        return most, turns.shares.held, dict(turns.lines)

    assert run(scenario()) == (1, 0, {})


def test_clients_take_turns():
    async def scenario():
        turns, order = Turns(64), []
        tasks = [asyncio.create_task(work(turns, client, order)) for client in "aaaaaabbc"]
        await asyncio.gather(*tasks)
        return "".join(order)

    assert run(scenario()) == "aabcabaaa"


def test_everybody_rests_as_long_as_a_turn_took():
    async def scenario():
        turns, loop = Turns(64), asyncio.get_running_loop()
        ends = []
        async with turns.turn("a"):
            await asyncio.sleep(0.05)
        ends.append(loop.time())
        async with turns.turn("b"):
            ends.append(loop.time())
        return ends[1] - ends[0]

    assert run(scenario()) >= 0.049


def test_too_many_are_refused_and_one_client_cannot_take_all_places():
    async def scenario():
        turns = Turns(8)
        async with turns.turn("a"):
            tasks = [asyncio.create_task(work(turns, "a", [])) for _ in range(8)]
            await asyncio.sleep(0)
            other = asyncio.create_task(work(turns, "b", []))
            await asyncio.sleep(0)
            assert turns.shares.by_client == {"a": 6, "b": 1}
        results = await asyncio.gather(*tasks, other, return_exceptions=True)
        return [type(result) for result in results]

    assert run(scenario()) == [type(None)] * 6 + [Overloaded] * 2 + [type(None)]


@pytest.mark.parametrize("when", ["waiting", "called"])
def test_one_that_is_cancelled_leaves_its_turn_to_others(when):
    async def scenario():
        turns, order = Turns(8), []
        async with turns.turn("a"):
            first = asyncio.create_task(work(turns, "b", order))
            second = asyncio.create_task(work(turns, "c", order))
            await asyncio.sleep(0)
            if when == "waiting":
                first.cancel()
        if when == "called":
            while next(iter(turns.lines)) != "c":
                await asyncio.sleep(0)
            first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        return order, turns.shares.held

    assert run(scenario()) == (["c"], 0)


def test_a_turn_that_fails_ends():
    async def scenario():
        turns, order = Turns(8), []
        with pytest.raises(ZeroDivisionError):
            async with turns.turn("a"):
                raise ZeroDivisionError
        await work(turns, "b", order)
        return order

    assert run(scenario()) == ["b"]
