"""Places that requests wait for, also where one that waits is cancelled."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from shortlist.client.transport.places import Places


async def use(places, order, name, pause):
    if places.free:
        places.free -= 1
    else:
        await places.wait()
    try:
        order.append(name)
        await asyncio.sleep(pause)
    finally:
        places.give_back()


def test_first_come_first_served():
    async def run():
        places, order = Places(2), []
        await asyncio.gather(*(use(places, order, name, 0.001) for name in range(9)))
        return places.free, order

    assert asyncio.run(run()) == (2, list(range(9)))


@pytest.mark.parametrize("is_given", [False, True])
def test_who_is_cancelled_keeps_no_place(is_given):
    async def run():
        places, order = Places(1), []
        first = asyncio.ensure_future(use(places, order, "first", 10))
        second = asyncio.ensure_future(use(places, order, "second", 0))
        third = asyncio.ensure_future(use(places, order, "third", 0))
        await asyncio.sleep(0)
        if is_given:
            places.waiters[0].set_result(None)  # in the step in which it is cancelled
            places.waiters.popleft()
        second.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await second
        first.cancel()
        await asyncio.wait([first, third])
        return places.free, order

    assert asyncio.run(run()) == (1 + is_given, ["first", "third"])
