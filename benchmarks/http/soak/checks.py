"""What came of a soak, and which promises that breaks."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchmarks.http.client.connection import RawResponse

OK, TOO_MANY, UNAVAILABLE, TIMED_OUT = 200, 429, 503, 504
ALLOWED_STATUSES = (OK, TOO_MANY, UNAVAILABLE, TIMED_OUT)
MAX_HEALTH_MS = 100.0  # p99 of answers to /healthz
SOAK_WARM_UP_SHARE = 0.2  # share of the load's time that is warm-up
LEAST_SENT_SHARE = 0.95  # least share of the rate that was asked for at which the load counts
MAX_EXAMPLES = 3


@dataclass
class Tally:
    """Requests counted as they end. latencies: of answers with 200, seconds from when the request was due.

    lags: seconds by which requests were sent late, the client's own fault; part of the latencies.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    no_retry_after: int = 0
    latencies: array[float] = field(default_factory=lambda: array("d"))
    lags: array[float] = field(default_factory=lambda: array("d"))

    def count(self, response: RawResponse, seconds: float, difference: str | None) -> None:
        """Count a response; `difference` says how one with 200 is wrong."""
        self.statuses[response.status] += 1
        if response.status == OK:
            self.latencies.append(seconds)
        if difference is not None:
            self.wrong.append(difference)
        if response.status == TOO_MANY and not response.headers.get("retry-after", "").isdigit():
            self.no_retry_after += 1

    @property
    def total(self) -> int:
        """How many requests have ended, by a response or by a lost connection."""
        return self.statuses.total() + self.losses.total()

    def quantile_ms(self, share: float) -> float:
        """Latency of admitted requests, ms; nan where there were none."""
        return quantile_ms(self.latencies, share)


def quantile_ms(seconds: array[float], share: float) -> float:
    """A quantile of `seconds` in ms; nan of nothing."""
    return float(np.quantile(seconds, share)) * 1e3 if seconds else math.nan


@dataclass
class Memory:
    """Resident memory in MiB, sampled evenly over the load."""

    samples: list[float] = field(default_factory=list)

    @property
    def ends(self) -> tuple[float, float]:
        """Medians of the first and the last tenth after the warm-up."""
        steady = self.samples[int(len(self.samples) * SOAK_WARM_UP_SHARE) :]
        tenth = max(1, len(steady) // 10)
        return float(np.median(steady[:tenth])), float(np.median(steady[-tenth:]))

    @property
    def growth(self) -> float:
        """Share by which memory grew after the warm-up."""
        first, last = self.ends
        return last / first - 1


@dataclass
class FaultyClient:
    """One kind of faulty client. source: its address. outcomes: what each got.

    harms: how a well-behaved neighbour was harmed after it.
    """

    name: str
    source: str = "127.0.0.1"
    outcomes: Counter[str] = field(default_factory=Counter)
    harms: list[str] = field(default_factory=list)


class Promises(NamedTuple):
    """What a soak must keep.

    growth: share by which memory may grow after the warm-up, less than this. goodput_share: of the capacity, what
    well-behaved clients get at least. deadlines: the p99 of admitted requests is under so many deadlines.
    """

    growth: float
    goodput_share: float
    deadlines: float


PROMISES = Promises(0.05, 0.5, 1.0)
QUICK_PROMISES = Promises(0.25, 0.5, 1.0)  # seconds are all warm-up


@dataclass
class SoakResult:
    """Figures of one soak. rate: requests/s that were to be sent. sending_rate: requests/s that were, over `seconds`.

    health_latencies: seconds of answers to /healthz.
    """

    capacity: float
    rate: float
    sending_rate: float
    seconds: float
    deadline_ms: float
    promises: Promises
    tally: Tally
    memory: Memory
    health_latencies: array[float]
    faulty_clients: list[FaultyClient]

    @property
    def goodput(self) -> float:
        """Requests/s that were admitted; a server that wastes no work keeps it near its capacity."""
        return self.tally.statuses[OK] / self.seconds

    @property
    def goodput_share(self) -> float:
        """The same as a share of the capacity."""
        return self.goodput / self.capacity

    @property
    def health_p99_ms(self) -> float:
        """p99 of answers to /healthz, ms."""
        return quantile_ms(self.health_latencies, 0.99)


def list_broken_promises(result: SoakResult) -> list[str]:
    """A sentence for every promise that is broken."""
    sentences = [*check_load(result), *check_responses(result.tally)]
    p99 = result.tally.quantile_ms(0.99)
    promises = result.promises
    if not p99 < promises.deadlines * result.deadline_ms:
        sentences.append(f"p99 of admitted requests is {p99:.0f} ms, over the deadline of {result.deadline_ms:.0f} ms")
    if not result.health_p99_ms < MAX_HEALTH_MS:
        sentences.append(f"p99 of /healthz is {result.health_p99_ms:.0f} ms, over {MAX_HEALTH_MS:.0f} ms")
    if not result.goodput_share >= promises.goodput_share:
        share, least = f"{result.goodput_share:.0%}", f"{promises.goodput_share:.0%}"
        sentences.append(f"well-behaved clients got {share} of the capacity: {least} is promised")
    if not result.memory.growth < promises.growth:
        first, last = result.memory.ends
        sentences.append(f"memory grew by {result.memory.growth:.1%} after warm-up, from {first:.0f} to {last:.0f} MiB")
    for client in result.faulty_clients:
        if client.harms:
            examples = join_examples(client.harms)
            sentences.append(f"a client that {client.name} harmed {len(client.harms)} others: {examples}")
        if not client.outcomes:
            sentences.append(f"no client that {client.name} came to its end, so nothing is known of it")
    return sentences


def check_load(result: SoakResult) -> list[str]:
    """A sentence where the client itself was too slow to send the load."""
    if result.sending_rate >= LEAST_SENT_SHARE * result.rate:
        return []
    rates = f"{result.sending_rate:.0f} of {result.rate:.0f} requests/s"
    return [f"the client sent {rates}: too slow itself, so nothing is proven"]


def check_responses(tally: Tally) -> list[str]:
    """Sentences on statuses, lost connections and wrong responses."""
    sentences = []
    odd = {status: count for status, count in tally.statuses.items() if status not in ALLOWED_STATUSES}
    if odd:
        counts = ", ".join(f"{count} x {status}" for status, count in odd.items())
        sentences.append(f"other failures than 429, 503 and 504 came: {counts}")
    if tally.losses:
        counts = ", ".join(f"{count} x {reason}" for reason, count in tally.losses.most_common(MAX_EXAMPLES))
        sentences.append(f"{tally.losses.total()} requests were not answered at all: {counts}")
    if tally.wrong:
        sentences.append(f"{len(tally.wrong)} answers differ from the offline ones: {join_examples(tally.wrong)}")
    if tally.no_retry_after:
        sentences.append(f"{tally.no_retry_after} answers with 429 have no Retry-After in seconds")
    return sentences


def join_examples(sentences: list[str]) -> str:
    """The first few of `sentences`."""
    return "; ".join(sentences[:MAX_EXAMPLES])
