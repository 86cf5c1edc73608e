"""Loads one at a time, and a bounded number of clients that wait for them."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from shortlist.errors import NotFound, Overloaded
from shortlist.server.lifecycle.load_queue import MAX_WAITING_LOADS, LoadQueue
from starlette.requests import ClientDisconnect

LOADS = 1000


class Loads:
    """Counts loads, and how many ran at the same time."""

    def __init__(self):
        self.running = self.most = self.done = 0
        self.begun, self.finish = threading.Event(), threading.Event()

    def __call__(self):
        self.running += 1
        self.most = max(self.most, self.running)
        self.begun.set()
        self.finish.wait(5)
        self.running -= 1
        self.done += 1


async def stay():
    await asyncio.Event().wait()


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_thousand_loads_that_were_asked_for_and_abandoned():
    async def ask():
        queue, loads, outcomes = LoadQueue(), Loads(), []
        first = asyncio.ensure_future(queue.run_for_client(loads, stay))
        while not loads.begun.is_set():
            await asyncio.sleep(0.01)
        for _ in range(LOADS):
            left = asyncio.Event()
            asking = asyncio.ensure_future(queue.run_for_client(loads, left.wait))
            await settle()
            assert queue.waiting <= MAX_WAITING_LOADS
            left.set()
            outcomes.append((await asyncio.gather(asking, return_exceptions=True))[0])
        loads.finish.set()
        await first
        return queue, loads, outcomes

    queue, loads, outcomes = asyncio.run(ask())
    assert {type(outcome) for outcome in outcomes} == {ClientDisconnect}
    assert (loads.done, loads.most, queue.waiting, queue.lock.locked()) == (1, 1, 0, False)


def test_clients_that_stay_are_served_in_turn_and_more_of_them_are_refused():
    async def ask():
        queue, loads = LoadQueue(), Loads()
        asking = [asyncio.ensure_future(queue.run_for_client(loads, stay)) for _ in range(MAX_WAITING_LOADS)]
        await settle()
        with pytest.raises(Overloaded) as refusal:
            await queue.run_for_client(loads, stay)
        assert refusal.value.retry_after > 0
        own = asyncio.ensure_future(queue.run(loads))  # a poll has room nevertheless
        loads.finish.set()
        await asyncio.gather(*asking, own)
        return loads

    loads = asyncio.run(ask())
    assert (loads.done, loads.most) == (MAX_WAITING_LOADS + 1, 1)


def test_a_load_that_fails_lets_the_next_one_go():
    def fail():
        raise NotFound("no such model")

    async def ask():
        queue = LoadQueue()
        with pytest.raises(NotFound):
            await queue.run_for_client(fail, stay)
        return await queue.run(time.monotonic)

    assert asyncio.run(ask()) > 0
