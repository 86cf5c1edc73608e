"""`changes`: queries without changes, with them, and with the server killed among them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import shutil
import signal
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import shortlist
from rich.console import Console
from rich.table import Table
from shortlist.errors import BadInput, NotReady, ShortlistError

from benchmarks.common.processes import Process, free_port, pick_cores, python_command
from benchmarks.http.servers.bundles import link_alone

from .catalogue import Feed, draw_items, make_catalogue
from .load import LANES, Load, LoadResult, count_lost

MAX_BEFORE_SECONDS = 60  # of queries without changes: 12,000 tell their p99 well enough
MAX_KILL_SECONDS = 0.5  # after which a server is killed, since it was ready
PROMISES = {"lost": 0, "removed_served": 0, "not_visible": 0, "visible_ms": 1000.0, "p99_ratio": 2.0}


@dataclass(frozen=True)
class ChangePlan:
    """classes: V. seconds: of each part. queries, changes: a second. batch: changes in a request. kills: of servers.

    removed: how many items of the export are removed before queries are measured beside changes.
    """

    classes: int
    seconds: float
    queries: float
    changes: float
    batch: int
    kills: int
    removed: int = 0


def start_server(cache: Path, repository: Path, logs: Path) -> Process:
    """A server whose items change, ready to be asked."""
    port = free_port()
    command = python_command("shortlist", "serve", repository, "--port", port, "--item-changes", logs, "--threads", 1)
    server = Process("changes", command, port, cache)
    try:
        with shortlist.Client(server.url) as client:
            server.wait_ready(lambda: check_ready(client))
    except ShortlistError:
        server.stop()
        raise
    return server


def check_ready(client: shortlist.Client) -> None:
    """Raise NotReady while the server loads."""
    if not client.ready():
        raise NotReady("it is loading")


def run_changes(cache: Path, plan: ChangePlan) -> int:
    """Measure and print; 1 where a promise is broken. Raises BadInput."""
    if plan.removed > plan.classes // 2:
        raise BadInput(f"--removed {plan.removed} is more than half of {plan.classes} items: remove fewer")
    tell(f"the head of {plan.classes:,} items; its export takes minutes where there is none yet")
    bundle = make_catalogue(cache, plan.classes).resolve()
    folder = (cache / "changes").resolve()
    shutil.rmtree(folder, ignore_errors=True)
    repository, logs = link_alone(bundle, folder / "repository"), folder / "logs"
    os.sched_setaffinity(0, {pick_cores()[1]})
    feed = Feed(plan.classes, seed=1)
    server = start_server(cache, repository, logs)
    try:
        before, during = asyncio.run(measure_load(server.url, feed, plan))
        kill(server)
        server = start_server(cache, repository, logs)
        lost = asyncio.run(count_all_lost(server.url, feed))
        feeds = [feed]
        for number in range(plan.kills):
            feeds.append(Feed(plan.classes, seed=100 + number))
            server, more = kill_and_look(server, cache, repository, logs, plan, feeds[-1])
            lost += more
            tell(f"{number + 1} of {plan.kills} kills, {lost} changes lost")
        lost += sum(asyncio.run(count_all_lost(server.url, one)) for one in feeds)  # those before, too
    finally:
        server.stop()
    report = make_report(plan, before, during, lost)
    Console().print(make_table(report))
    print(json.dumps(report))
    return 1 if report["broken"] else 0


def tell(text: str) -> None:
    """Say how far the run is."""
    print(text, file=sys.stderr, flush=True)


async def measure_load(url: str, feed: Feed, plan: ChangePlan) -> tuple[LoadResult, LoadResult]:
    """What queries take without changes, and with them."""
    contexts = draw_items(np.random.default_rng(3), 512)
    async with shortlist.AsyncClient(url) as client:
        load = Load(client, feed, contexts)
        await load.run(min(2.0, plan.seconds), plan.queries, 0, plan.batch)
        before = await load.run(min(plan.seconds, MAX_BEFORE_SECONDS), plan.queries, 0, plan.batch)
        await load.remove(plan.removed)
        return before, await load.run(plan.seconds, plan.queries, plan.changes, plan.batch)


async def count_all_lost(url: str, feed: Feed) -> int:
    """How many changes are lost that were acknowledged to `feed`."""
    async with shortlist.AsyncClient(url) as client:
        return await count_lost(client, feed)


def kill(server: Process) -> None:
    """End a server as a crash would."""
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()


def kill_and_look(
    server: Process, cache: Path, repository: Path, logs: Path, plan: ChangePlan, feed: Feed
) -> tuple[Process, int]:
    """Change items until the server is killed at a random moment; the next server, and what it has lost."""
    seconds = random.Random(feed.prefix).uniform(0, MAX_KILL_SECONDS)

    async def change_until_killed() -> None:
        async with shortlist.AsyncClient(server.url, timeout=1.0) as client:
            load = Load(client, feed, np.empty((0, 0), np.float32))
            asyncio.get_running_loop().call_later(seconds, os.killpg, server.process.pid, signal.SIGKILL)
            with suppress(ShortlistError):
                for number in itertools.count():
                    await asyncio.gather(*[load.change(plan.batch, number, lane) for lane in range(LANES)])

    asyncio.run(change_until_killed())
    server.process.wait()
    other = start_server(cache, repository, logs)
    return other, asyncio.run(count_all_lost(other.url, feed))


def make_report(plan: ChangePlan, before: LoadResult, during: LoadResult, lost: int) -> dict[str, Any]:
    """The figures, and the names of the promises that they break."""
    figures: dict[str, Any] = {"plan": asdict(plan), "changed": during.changed, "lost": lost}
    figures |= {"removed_served": during.removed_served, "not_visible": during.not_visible}
    figures["changes_a_second"] = round(during.changed / plan.seconds)
    for name, result in (("before", before), ("during", during)):
        figures |= {f"query_{name}_p{share}_ms": result.percentile("query_ms", share) for share in (50, 99)}
    figures["p99_ratio"] = figures["query_during_p99_ms"] / figures["query_before_p99_ms"]
    for name in ("acknowledge_ms", "visible_ms"):
        figures |= {f"{name[:-3]}_p{share}_ms": during.percentile(name, share) for share in (50, 99)}
    figures["visible_ms"] = during.percentile("visible_ms", 100)
    figures["broken"] = [name for name, most in PROMISES.items() if not figures[name] <= most]
    return {name: round(value, 3) if isinstance(value, float) else value for name, value in figures.items()}


def make_table(report: dict[str, Any]) -> Table:
    """The figures as a table."""
    table = Table("figure", "value", title="items that change under query load")
    for name, value in report.items():
        if name != "plan":
            table.add_row(name, str(value))
    return table
