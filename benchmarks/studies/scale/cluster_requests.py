"""Clients of a cluster: what comes back, and when."""

from __future__ import annotations

import statistics
import threading
import time
from typing import Any

import httpx
import numpy as np
from shortlist.core.results import FloatArray

from .contexts import NAME

K, CLIENTS = 5, 4
OVERHEAD_CALLS = 200
PAUSE_SECONDS = 0.02  # after a connection was lost
KINDS = ("right", "wrong", "failed", "untyped", "lost")


class Load:
    """Clients that ask without a pause, a connection each, and note what came back and when.

    outcomes: (time, kind) of each request, where kind is right, wrong, failed, untyped or lost.
    """

    def __init__(self, url: str, contexts: FloatArray, expected: list[list[int]]) -> None:
        self.url, self.expected = url, expected
        self.bodies = [{"model": NAME, "contexts": [row.tolist()], "k": K} for row in contexts]
        self.outcomes: list[tuple[float, str]] = []
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self.ask, args=(number,)) for number in range(CLIENTS)]

    def __enter__(self) -> Load:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def ask(self, number: int) -> None:
        """Ask until the end."""
        client = httpx.Client(base_url=self.url, timeout=15, trust_env=False)
        place = number
        while not self.stopping.is_set():
            place = (place + 1) % len(self.bodies)
            try:
                kind = self.judge(client.post("/v1/topk", json=self.bodies[place]), place)
            except httpx.TransportError:
                kind = "lost"
                time.sleep(PAUSE_SECONDS)
            self.outcomes.append((time.monotonic(), kind))
        client.close()

    def judge(self, response: httpx.Response, place: int) -> str:
        """What a response is worth."""
        if response.status_code == httpx.codes.OK:
            return "right" if response.json()["ids"][0] == self.expected[place] else "wrong"
        is_typed = response.headers.get("content-type", "").startswith("application/json")
        return "failed" if is_typed else "untyped"

    def summarize(self, start: float) -> dict[str, Any]:
        """Counts since a time, and the longest time without a right answer."""
        late = sorted(outcome for outcome in self.outcomes if outcome[0] >= start)
        right = [start, *(when for when, kind in late if kind == "right")]
        gaps = np.diff([*right, late[-1][0]]) if late else np.array([np.inf])
        counts = {kind: sum(each == kind for _, each in late) for kind in KINDS}
        return counts | {"longest_gap_s": round(float(gaps.max()), 2)}


def time_requests(url: str, contexts: FloatArray) -> float:
    """The median time of a request over one connection, us."""
    client, times = httpx.Client(base_url=url, timeout=30, trust_env=False), []
    for number in range(OVERHEAD_CALLS):
        body = {"model": NAME, "contexts": [contexts[number % len(contexts)].tolist()], "k": K}
        start = time.perf_counter()
        client.post("/v1/topk", json=body).raise_for_status()
        times.append(time.perf_counter() - start)
    client.close()
    return statistics.median(times) * 1e6
