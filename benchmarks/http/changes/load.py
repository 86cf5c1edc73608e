"""Queries at a fixed rate, and changes beside them; every answer is held against what was acknowledged before it."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import dataclass, field

import numpy as np
import shortlist
from shortlist.core.results import FloatArray
from shortlist.errors import BadInput

from .catalogue import DIM, MODEL_NAME, Feed

K = 10
LANES = 8  # requests that change items at a time
NEAR_SHARE = 0.5  # of queries, that ask for what was changed a short while ago
PROBE_SCALE = 3.0  # of an item's vector, by which the item is looked for
SCORE_ERROR = 1e-3  # of a score over HTTP, relative: far more than rounding
LOGPROB_ERROR = 1e-3  # nats: far more than rounding, and far less than by what vectors of two items differ
COUNTED_IDS = 4096  # in a request
REMOVED_TOGETHER = 1_000  # items, before the changes
NO_VECTORS = np.empty((0, DIM), np.float32)
REPORT_SECONDS = 30.0  # from one line on how far a load is to the next


@dataclass
class LoadResult:
    """Latencies of queries, from when they were due, ms; and what was wrong.

    acknowledge_ms: of changes, until their answer. visible_ms: from an acknowledgement to an answer that shows it.
    """

    query_ms: list[float] = field(default_factory=list)
    acknowledge_ms: list[float] = field(default_factory=list)
    visible_ms: list[float] = field(default_factory=list)
    removed_served: int = 0
    not_visible: int = 0
    changed: int = 0

    def percentile(self, name: str, share: float) -> float:
        """A percentile of one of the latencies, NaN where there are none."""
        values = getattr(self, name)
        return float(np.percentile(values, share)) if values else float("nan")


class Load:
    """Asks one server. feed: of the changes. contexts: [n, DIM], that queries ask for."""

    def __init__(self, client: shortlist.AsyncClient, feed: Feed, contexts: FloatArray) -> None:
        self.client, self.feed, self.contexts, self.result = client, feed, contexts, LoadResult()

    async def run(self, seconds: float, query_rate: float, change_rate: float, batch: int) -> LoadResult:
        """Ask and change for so many seconds; rates are of queries and of changed items a second."""
        self.result = LoadResult()
        work = [self.ask_all(seconds, query_rate)]
        if change_rate:
            work += [self.change_all(seconds, change_rate / batch / LANES, batch, lane) for lane in range(LANES)]
        reports = asyncio.create_task(self.report_all(seconds))
        try:
            await asyncio.gather(*work)
        finally:
            reports.cancel()
        return self.result

    async def remove(self, count: int) -> None:
        """Remove so many items of the export."""
        for start in range(0, count, REMOVED_TOGETHER):
            gone = [self.feed.choose_base() for _ in range(min(REMOVED_TOGETHER, count - start))]
            await self.client.put_items(MODEL_NAME, remove=gone)
            self.feed.acknowledge([], NO_VECTORS, gone, [])

    async def report_all(self, seconds: float) -> None:
        """Say again and again how far the load is, and what the queries since the last time took."""
        start, first = time.perf_counter(), 0
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            times = self.result.query_ms[first:]
            first += len(times)
            p50, p99 = np.percentile(times, (50, 99)) if times else (np.nan, np.nan)
            done = f"{time.perf_counter() - start:.0f} of {seconds:g} s, {self.result.changed:,} items changed"
            print(f"{done}; queries p50 {p50:.1f}, p99 {p99:.1f} ms", file=sys.stderr, flush=True)

    async def ask_all(self, seconds: float, rate: float) -> None:
        """Send queries when they are due, whether or not those before are answered."""
        tasks = []
        start = time.perf_counter()
        for number in range(int(seconds * rate)):
            due = start + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(self.ask(self.choose_context(number), due)))
        await asyncio.gather(*tasks)

    def choose_context(self, number: int) -> FloatArray:
        """A context, or one near to an item that was changed a short while ago."""
        if self.feed.recent and self.feed.rng.random() < NEAR_SHARE:
            near: FloatArray = self.feed.recent[number % len(self.feed.recent)]
            return near
        context: FloatArray = self.contexts[number % len(self.contexts)]
        return context

    async def ask(self, context: FloatArray, due: float) -> None:
        """One query: no item may be in its answer whose removal was acknowledged before it was sent."""
        sent = time.perf_counter()
        top = await self.client.topk(MODEL_NAME, context[None], K)
        self.result.query_ms.append((time.perf_counter() - due) * 1e3)
        gone = self.feed.removed
        self.result.removed_served += sum(gone.get(item, np.inf) < sent for item in top.ids[0].tolist())

    async def change_all(self, seconds: float, rate: float, size: int, lane: int) -> None:
        """Send batches when they are due, one after the other; of one in ten an item is looked for at once."""
        start = time.perf_counter()
        for number in range(int(seconds * rate)):
            await asyncio.sleep(max(0.0, start + (number + lane / LANES) / rate - time.perf_counter()))
            await self.change(size, number, lane, probe=number % 10 == 0)

    async def change(self, size: int, sequence: int, lane: int = 0, *, probe: bool = False) -> None:
        """One batch; its items are in the next answer, or they are not."""
        names, vectors, gone = self.feed.next_batch(size)
        start = time.perf_counter()
        answer = await self.client.put_items(
            MODEL_NAME, names, vectors, gone, source=f"{self.feed.prefix}-{lane}", sequence=sequence
        )
        acknowledged = time.perf_counter()
        self.feed.acknowledge(names, vectors, gone, answer["ids"])
        self.result.acknowledge_ms.append((acknowledged - start) * 1e3)
        self.result.changed += size
        if probe:
            await self.look_for(answer["ids"][0], vectors[0], acknowledged)

    async def look_for(self, item: int, vector: FloatArray, acknowledged: float) -> None:
        """Note whether an item is in the answer to its own vector; of one in a hundred k others score higher there."""
        best = await self.client.topk(MODEL_NAME, PROBE_SCALE * vector[None], K, scores=True)
        assert best.scores is not None, "scores were asked for"
        if item in best.ids[0]:
            self.result.visible_ms.append((time.perf_counter() - acknowledged) * 1e3)
        elif PROBE_SCALE * float(vector @ vector) > (1 + SCORE_ERROR) * best.scores[0, -1]:
            self.result.not_visible += 1


async def count_lost(client: shortlist.AsyncClient, feed: Feed) -> int:
    """How many acknowledged changes a server does not have: items that live, and items that were removed.

    One vector is asked about all of them, by the log-probabilities of their ids: those of removed items are -inf, those
    of living ones differ from their products with that vector by one number, the log-normaliser.
    """
    context = np.random.default_rng(4).standard_normal((1, DIM), np.float32)
    names, gone = list(feed.living), list(feed.removed)
    lost = 0
    for start in range(0, len(names), COUNTED_IDS):
        some = names[start : start + COUNTED_IDS]
        products = np.stack([feed.living[name] for name in some]) @ context[0]
        normalizers = products - await find_logprobs(client, context, [feed.ids[name] for name in some])
        lost += int((~(abs(normalizers - np.median(normalizers)) < LOGPROB_ERROR)).sum())
    for start in range(0, len(gone), COUNTED_IDS):
        lost += int((await find_logprobs(client, context, gone[start : start + COUNTED_IDS]) > -np.inf).sum())
    return lost


async def find_logprobs(client: shortlist.AsyncClient, context: FloatArray, ids: list[int]) -> FloatArray:
    """Log-probabilities [m] of ids for one context [1, d]; NaN for all where the server does not know one of them."""
    try:
        found: FloatArray = (await client.logprobs(MODEL_NAME, context, [ids]))[0]
    except BadInput:
        return np.full(len(ids), np.nan, np.float32)
    return found
