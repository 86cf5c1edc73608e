"""The load of a soak: a closed loop that finds the capacity, then requests at a fixed rate, all of them checked."""

from __future__ import annotations

import asyncio
import itertools
import time
from dataclasses import dataclass

from shortlist.errors import ServerError
from shortlist.head import Head

from benchmarks.http.client.connection import Address, ConnectionLost, ConnectionPool

from .checks import OK, Tally
from .expected_responses import ExpectedResponse

CLOSED_LOOP_CONNECTIONS = 16
CLOSED_LOOP_WARM_SECONDS = 1.0


@dataclass(frozen=True)
class LoadGenerator:
    """Sends `requests` in turn to `address` and compares what comes back with `head`; waits `timeout` seconds."""

    address: Address
    requests: list[ExpectedResponse]
    head: Head
    timeout: float

    async def measure_capacity(self, seconds: float) -> float:
        """Right responses a second over 16 connections that wait for each; raises ServerError where one is wrong."""
        pool, numbers = ConnectionPool(self.address, CLOSED_LOOP_CONNECTIONS), itertools.count()

        async def send_until(end: float, tally: Tally) -> None:
            while time.perf_counter() < end:
                expected = self.requests[next(numbers) % len(self.requests)]
                await self.send_and_count(pool, expected, expected.without_timeout, time.perf_counter(), tally)

        tally = Tally()
        for duration, phase_tally in ((CLOSED_LOOP_WARM_SECONDS, Tally()), (seconds, tally)):
            start = time.perf_counter()
            await asyncio.gather(*(send_until(start + duration, phase_tally) for _ in range(CLOSED_LOOP_CONNECTIONS)))
        elapsed = time.perf_counter() - start
        pool.close()
        if not tally.statuses[OK] or tally.wrong:
            raise ServerError(
                f"the capacity cannot be measured: {dict(tally.statuses)} {tally.losses} {tally.wrong[:1]}"
            )
        return tally.statuses[OK] / elapsed

    async def send_open_loop(self, rate: float, seconds: float, connections: int, tally: Tally) -> float:
        """`rate` requests a second, whether or not earlier ones were answered; returns the rate really sent."""
        pool = ConnectionPool(self.address, connections)
        tasks: set[asyncio.Task[None]] = set()
        start = time.perf_counter()
        for number in range(round(rate * seconds)):
            due = start + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tally.lags.append(time.perf_counter() - due)
            expected = self.requests[number % len(self.requests)]
            task = asyncio.create_task(self.send_and_count(pool, expected, expected.with_timeout, due, tally))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
        sending_rate = (number + 1) / (time.perf_counter() - start)
        await asyncio.gather(*tasks)
        pool.close()
        return sending_rate

    async def send_and_count(
        self, pool: ConnectionPool, expected: ExpectedResponse, request: bytes, due: float, tally: Tally
    ) -> None:
        """One request; its latency counts from `due`, a time of `perf_counter`."""
        try:
            response = await pool.send(request, self.timeout)
        except ConnectionLost as error:
            tally.losses[str(error)] += 1
            return
        seconds = time.perf_counter() - due
        difference = expected.describe_difference(response, self.head) if response.status == OK else None
        tally.count(response, seconds, difference)
