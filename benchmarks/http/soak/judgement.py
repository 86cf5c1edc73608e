"""What a soak saw, and which promises that breaks."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from benchmarks.http.client.wire import Reply

OK, TOO_MANY, TIMED_OUT = 200, 429, 504
ALLOWED = (OK, TOO_MANY, TIMED_OUT)
GROWTH = 0.05  # of memory, after the warm-up
QUICK_GROWTH = 0.25  # seconds of load are all warm-up: only a flood is found
WARM = 0.2  # share of the load's time that is warm-up
KEPT_UP = 0.95  # least share of the rate that was asked for at which the load counts
SHOWN = 3


@dataclass
class Tally:
    """Requests counted as they end. latencies: of answers with 200, seconds from when the request was due.

    lags: seconds by which requests were sent late, the client's own fault; part of the latencies.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    no_retry_after: int = 0
    latencies: array[float] = field(default_factory=lambda: array("d"))
    lags: array[float] = field(default_factory=lambda: array("d"))

    def count(self, reply: Reply, seconds: float, difference: str | None) -> None:
        """One response; `difference` says how an answer with 200 is wrong."""
        self.statuses[reply.status] += 1
        if reply.status == OK:
            self.latencies.append(seconds)
        if difference is not None:
            self.wrong.append(difference)
        if reply.status == TOO_MANY and not reply.headers.get("retry-after", "").isdigit():
            self.no_retry_after += 1

    @property
    def total(self) -> int:
        """Requests."""
        return self.statuses.total() + self.lost.total()

    def quantile_ms(self, share: float) -> float:
        """Latency of admitted requests, ms; nan where there were none."""
        return quantile_ms(self.latencies, share)


def quantile_ms(seconds: array[float], share: float) -> float:
    """A quantile in ms; nan of nothing."""
    return float(np.quantile(seconds, share)) * 1e3 if seconds else math.nan


@dataclass
class Memory:
    """Resident memory in MiB, sampled evenly over the load."""

    samples: list[float] = field(default_factory=list)

    @property
    def ends(self) -> tuple[float, float]:
        """Medians of the first and the last tenth after the warm-up."""
        steady = self.samples[int(len(self.samples) * WARM) :]
        tenth = max(1, len(steady) // 10)
        return float(np.median(steady[:tenth])), float(np.median(steady[-tenth:]))

    @property
    def growth(self) -> float:
        """Share by which memory grew after the warm-up."""
        first, last = self.ends
        return last / first - 1


@dataclass
class Mischief:
    """What one kind of misbehaving client did. outcomes: what it got. harmed: what happened to a neighbour after."""

    name: str
    outcomes: Counter[str] = field(default_factory=Counter)
    harmed: list[str] = field(default_factory=list)


@dataclass
class Findings:
    """One soak. rate: requests/s that were to be sent. sent: requests/s that were, over `seconds`.

    growth: share by which memory may grow.
    """

    capacity: float
    rate: float
    sent: float
    seconds: float
    deadline_ms: float
    growth: float
    tally: Tally
    memory: Memory
    mischief: list[Mischief]

    @property
    def goodput(self) -> float:
        """Requests/s that were admitted; a server that wastes no work keeps it near its capacity."""
        return self.tally.statuses[OK] / self.seconds


def broken(found: Findings) -> list[str]:
    """A sentence for every promise that is broken."""
    sentences = [*broken_load(found), *broken_answers(found.tally)]
    p99 = found.tally.quantile_ms(0.99)
    if not p99 < found.deadline_ms:
        sentences.append(f"p99 of admitted requests is {p99:.0f} ms, over the deadline of {found.deadline_ms:.0f} ms")
    if not found.memory.growth < found.growth:
        first, last = found.memory.ends
        sentences.append(f"memory grew by {found.memory.growth:.1%} after warm-up, from {first:.0f} to {last:.0f} MiB")
    for each in found.mischief:
        if each.harmed:
            sentences.append(f"a client that {each.name} harmed {len(each.harmed)} others: {listed(each.harmed)}")
        if not each.outcomes:
            sentences.append(f"no client that {each.name} came to its end, so nothing is known of it")
    return sentences


def broken_load(found: Findings) -> list[str]:
    """A load that was not what it was to be proves nothing."""
    if found.sent >= KEPT_UP * found.rate:
        return []
    return [f"the client sent {found.sent:.0f} of {found.rate:.0f} requests/s: too slow itself, so nothing is proven"]


def broken_answers(tally: Tally) -> list[str]:
    """Statuses, lost connections, wrong answers."""
    sentences = []
    odd = {status: count for status, count in tally.statuses.items() if status not in ALLOWED}
    if odd:
        counts = ", ".join(f"{count} x {status}" for status, count in odd.items())
        sentences.append(f"other failures than 429 and 504 came: {counts}")
    if tally.lost:
        counts = ", ".join(f"{count} x {reason}" for reason, count in tally.lost.most_common(SHOWN))
        sentences.append(f"{tally.lost.total()} requests were not answered at all: {counts}")
    if tally.wrong:
        sentences.append(f"{len(tally.wrong)} answers differ from the offline ones: {listed(tally.wrong)}")
    if tally.no_retry_after:
        sentences.append(f"{tally.no_retry_after} answers with 429 have no Retry-After in seconds")
    return sentences


def listed(sentences: list[str]) -> str:
    """The first few."""
    return "; ".join(sentences[:SHOWN])
