"""`soak`: more than the server can do, for long, while every answer is compared with the offline one."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
import uvloop
from rich.console import Console
from rich.table import Table
from shortlist.errors import ServerError
from shortlist.head import Head, load

from benchmarks.http.client.wire import Address, Lost, Pool
from benchmarks.http.servers.bundles import checked, contexts_of, served_alone, synthetic_bundle
from benchmarks.http.servers.processes import Process, cores, free_port, python

from .expected import Expected, mixture
from .judgement import GROWTH, OK, QUICK_GROWTH, Findings, Memory, Mischief, Tally, broken, quantile_ms
from .mischief import ACTS, misbehave

CLOSED = 16  # connections of the closed loop
QUESTIONS = 512
ROWS = 256
SAMPLES = 200  # of memory
PATIENCE = 10.0  # seconds over the deadline after which a request counts as not answered
QUICK_SECONDS = 6
WARM_SECONDS, CAPACITY_SECONDS, QUICK_CAPACITY_SECONDS = 1.0, 10.0, 2.0


@dataclass(frozen=True)
class Plan:
    """How long (seconds), how much over the capacity, over how many connections, and the requests' timeout (ms)."""

    seconds: float
    deadline_ms: float
    factor: float
    connections: int
    quick: bool

    @property
    def load_seconds(self) -> float:
        """Of open-loop load."""
        return QUICK_SECONDS if self.quick else self.seconds

    @property
    def capacity_seconds(self) -> float:
        """Of the closed loop that measures the capacity."""
        return QUICK_CAPACITY_SECONDS if self.quick else CAPACITY_SECONDS

    @property
    def growth(self) -> float:
        """Share by which memory may grow after the warm-up."""
        return QUICK_GROWTH if self.quick else GROWTH

    @property
    def patience(self) -> float:
        """Seconds that a client waits."""
        return self.deadline_ms / 1e3 + PATIENCE


def soak(cache: Path, given: Path | None, plan: Plan) -> int:
    """Serve, load, judge; 1 where a promise is broken."""
    bundle = checked(given or synthetic_bundle(cache))
    head = load(bundle, threads=1)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        repository = served_alone(bundle, Path(folder))
        command = python("shortlist", "serve", repository, "--port", port, "--threads", 1)
        with Process("soak", command, port, cache / "logs") as server:
            server.wait(lambda: ready(server.url))
            found = uvloop.run(loaded(server, head, bundle, plan))
    sentences = broken(found)
    show(found, plan)
    for sentence in sentences:
        print(f"broken: {sentence}")
    print(json.dumps(summary(found, plan, bundle, sentences)))
    return 1 if sentences else 0


def ready(url: str) -> None:
    """Raise ServerError unless /readyz answers 200."""
    try:
        response = httpx.get(f"{url}/readyz", trust_env=False)
    except httpx.TransportError as error:
        raise ServerError(f"{url} did not answer ({error})") from error
    if response.status_code != OK:
        raise ServerError(f"{url}/readyz answered {response.status_code}: {response.text[:200]}")


async def loaded(server: Process, head: Head, bundle: Path, plan: Plan) -> Findings:
    """Capacity, then the load with all that goes on during it."""
    parts = urlsplit(server.url)
    address = Address(str(parts.hostname), int(parts.port or 0))
    questions = mixture(head, contexts_of(bundle, ROWS), QUESTIONS, round(plan.deadline_ms * 1e3), str(address))
    pin()
    gc.freeze()  # what was made so far is not looked through again
    told = Console(stderr=True)
    capacity = await capacity_of(address, questions, head, plan)
    rate = plan.factor * capacity
    told.print(
        f"capacity {capacity:,.0f} requests/s; {rate:,.0f} for {plan.load_seconds:g} s", highlight=False, soft_wrap=True
    )
    memory, pool, tally = Memory(), Pool(address, plan.connections), Tally()
    sampling = asyncio.create_task(sample(server, memory, plan.load_seconds))
    acts = [misbehave(name, address, questions, head, plan.load_seconds, plan.patience) for name in ACTS]
    acting: asyncio.Future[list[Mischief]] = asyncio.gather(*acts)
    sent = await open_loop(pool, questions, head, rate, plan, tally)
    mischief = await acting
    await sampling
    return Findings(capacity, rate, sent, plan.load_seconds, plan.deadline_ms, plan.growth, tally, memory, mischief)


def pin() -> None:
    """Keep this process off the server's core."""
    os.sched_setaffinity(0, {cores()[1]})


async def capacity_of(address: Address, questions: list[Expected], head: Head, plan: Plan) -> float:
    """Right answers a second over 16 connections that wait for each; raises ServerError where one is wrong."""
    pool, turns = Pool(address, CLOSED), itertools.count()

    async def client(until: float, tally: Tally) -> None:
        while time.perf_counter() < until:
            question = questions[next(turns) % len(questions)]
            await asked(pool, question, question.untimed, time.perf_counter(), head, plan.patience, tally)

    tally = Tally()
    for seconds, counted in ((WARM_SECONDS, Tally()), (plan.capacity_seconds, tally)):
        started = time.perf_counter()
        await asyncio.gather(*(client(started + seconds, counted) for _ in range(CLOSED)))
    seconds = time.perf_counter() - started
    pool.close()
    if not tally.statuses[OK] or tally.wrong:
        raise ServerError(f"the capacity cannot be measured: {dict(tally.statuses)} {tally.lost} {tally.wrong[:1]}")
    return tally.statuses[OK] / seconds


async def open_loop(pool: Pool, questions: list[Expected], head: Head, rate: float, plan: Plan, tally: Tally) -> float:
    """Requests at a fixed rate, late or not; returns requests/s that were really sent."""
    tasks: set[asyncio.Task[None]] = set()
    started = time.perf_counter()
    for number in range(round(rate * plan.load_seconds)):
        due = started + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tally.lags.append(time.perf_counter() - due)
        question = questions[number % len(questions)]
        task = asyncio.create_task(asked(pool, question, question.timed, due, head, plan.patience, tally))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    sent = (number + 1) / (time.perf_counter() - started)
    await asyncio.gather(*tasks)
    pool.close()
    return sent


async def asked(
    pool: Pool, question: Expected, request: bytes, due: float, head: Head, patience: float, tally: Tally
) -> None:
    """One request, counted."""
    try:
        reply = await pool.ask(request, patience)
    except Lost as error:
        tally.lost[str(error)] += 1
        return
    seconds = time.perf_counter() - due
    tally.count(reply, seconds, question.difference(reply, head) if reply.status == OK else None)


async def sample(server: Process, memory: Memory, seconds: float) -> None:
    """The server's memory, evenly over the load."""
    for _ in range(SAMPLES):
        memory.samples.append(server.memory())
        await asyncio.sleep(seconds / SAMPLES)


def show(found: Findings, plan: Plan) -> None:
    """Two tables, on stdout."""
    table = Table(title=f"{plan.load_seconds:g} s at {plan.factor:g} x the capacity", show_header=False)
    for name, value in figures(found).items():
        table.add_row(name, value)
    console = Console(width=120)
    console.print(table)
    others = Table(title="clients that misbehave")
    for column in ("a client that", "times", "what it got", "neighbours harmed"):
        others.add_column(column)
    for each in found.mischief:
        outcomes = ", ".join(f"{count} x {name}" for name, count in each.outcomes.most_common())
        others.add_row(each.name, str(each.outcomes.total()), outcomes, str(len(each.harmed)))
    console.print(others)


def figures(found: Findings) -> dict[str, str]:
    """What the first table says."""
    tally, (first, last) = found.tally, found.memory.ends
    statuses = ", ".join(f"{count:,} x {status}" for status, count in sorted(tally.statuses.items()))
    return {
        "capacity, closed loop": f"{found.capacity:,.0f} requests/s",
        "load, open loop": f"{found.sent:,.0f} requests/s",
        "client late by, p99": f"{quantile_ms(tally.lags, 0.99):.1f} ms",
        "admitted": f"{found.goodput:,.0f} requests/s",
        "answers": f"{statuses or 'none'}, {tally.lost.total():,} lost",
        "wrong answers": f"{len(tally.wrong):,} of {tally.statuses[OK]:,} compared",
        "p50 of admitted": f"{tally.quantile_ms(0.5):.1f} ms",
        "p99 of admitted": f"{tally.quantile_ms(0.99):.1f} ms (deadline {found.deadline_ms:.0f} ms)",
        "memory after warm-up": f"{first:.1f} to {last:.1f} MiB ({found.memory.growth:+.1%})",
        "promised of memory": f"growth under {found.growth:.0%}",
    }


def summary(found: Findings, plan: Plan, bundle: Path, sentences: list[str]) -> dict[str, object]:
    """The JSON line."""
    tally, (first, last) = found.tally, found.memory.ends
    return {
        "capacity_rps": round(found.capacity, 1),
        "sent_rps": round(found.sent, 1),
        "admitted_rps": round(found.goodput, 1),
        "late_p99_ms": rounded(quantile_ms(tally.lags, 0.99)),
        "seconds": plan.load_seconds,
        "requests": tally.total,
        "statuses": {str(status): count for status, count in sorted(tally.statuses.items())},
        "lost": tally.lost.total(),
        "wrong": len(tally.wrong),
        "p50_ms": rounded(tally.quantile_ms(0.5)),
        "p99_ms": rounded(tally.quantile_ms(0.99)),
        "deadline_ms": found.deadline_ms,
        "memory_first_mib": round(first, 1),
        "memory_last_mib": round(last, 1),
        "memory_growth": round(found.memory.growth, 4),
        "harmed": sum(len(each.harmed) for each in found.mischief),
        "broken": sentences,
        "bundle": str(bundle),
    }


def rounded(value: float) -> float | None:
    """One decimal; null in JSON for what is no number."""
    return None if np.isnan(value) else round(value, 1)
