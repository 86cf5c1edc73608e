"""Whether the server says that it lives, however busy it is: what a probe of an orchestrator would see."""

from __future__ import annotations

import asyncio
import time
from array import array

from benchmarks.http.client.connection import Address, ConnectionLost, open_connection

from .checks import OK, Tally

HEALTH_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
HEALTH_PAUSE_SECONDS = 0.05


async def probe_health(address: Address, seconds: float, timeout: float, tally: Tally) -> array[float]:
    """Ask /healthz on connections of their own for `seconds`; returns the seconds that each answer took.

    Losses, and statuses other than 200, go to `tally`.
    """
    latencies: array[float] = array("d")
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        try:
            response = await (await open_connection(address)).send(HEALTH_REQUEST, timeout)
        except ConnectionLost as error:
            tally.losses[f"/healthz: {error}"] += 1
        else:
            latencies.append(time.perf_counter() - start)
            if response.status != OK:
                tally.statuses[response.status] += 1
        await asyncio.sleep(HEALTH_PAUSE_SECONDS)
    return latencies
