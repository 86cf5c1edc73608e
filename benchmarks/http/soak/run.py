"""`soak`: more than the server can do, for long, while every response is compared with the offline one."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import uvloop
from rich.console import Console
from shortlist.errors import ServerError
from shortlist.head import Head, load

from benchmarks.common.processes import Process, free_port, pick_cores, python_command
from benchmarks.http.client.connection import Address
from benchmarks.http.servers.bundles import link_alone, make_synthetic_bundle, read_contexts, resolve_bundle

from .attackers import ATTACKS
from .checks import (
    OK,
    PROMISES,
    QUICK_PROMISES,
    FaultyClient,
    Memory,
    Promises,
    SoakResult,
    Tally,
    list_broken_promises,
)
from .expected_responses import mix_requests
from .faulty_clients import FAULTS, run_faulty_client
from .health import probe_health
from .load import LoadGenerator
from .tables import print_tables, summarise_soak

MISDEEDS = FAULTS | ATTACKS
REQUEST_COUNT = 512
SOAK_CONTEXTS = 256
MEMORY_SAMPLES = 200
GRACE_SECONDS = 10.0  # over the deadline; then a request counts as not answered
QUICK_SECONDS = 20
QUICK_SERVER_FLAGS = ("--body-timeout", 3)  # so that clients that do not read are cut off within the time
CAPACITY_SECONDS, QUICK_CAPACITY_SECONDS = 10.0, 2.0


@dataclass(frozen=True)
class SoakPlan:
    """How long (seconds), how much over the capacity, over how many connections, and the requests' timeout (ms)."""

    seconds: float
    deadline_ms: float
    factor: float
    connections: int
    quick: bool

    @property
    def load_seconds(self) -> float:
        """For how many seconds requests are sent at the fixed rate."""
        return QUICK_SECONDS if self.quick else self.seconds

    @property
    def capacity_seconds(self) -> float:
        """Seconds of the closed loop that measures the capacity."""
        return QUICK_CAPACITY_SECONDS if self.quick else CAPACITY_SECONDS

    @property
    def promises(self) -> Promises:
        """What must be kept."""
        return QUICK_PROMISES if self.quick else PROMISES

    @property
    def client_timeout(self) -> float:
        """Seconds that a client waits."""
        return self.deadline_ms / 1e3 + GRACE_SECONDS


def run_soak(cache: Path, bundle: Path | None, plan: SoakPlan) -> int:
    """Serve `bundle` or a synthetic head, load it, check and print; returns 1 where a promise is broken."""
    bundle = resolve_bundle(bundle or make_synthetic_bundle(cache))
    head = load(bundle, threads=1)
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        repository = link_alone(bundle, Path(folder))
        flags = QUICK_SERVER_FLAGS if plan.quick else ()
        command = python_command("shortlist", "serve", repository, "--port", port, "--threads", 1, *flags)
        with Process("soak", command, port, cache / "logs") as server:
            server.wait_ready(lambda: check_ready(server.url))
            result = uvloop.run(load_server(server, head, bundle, plan))
    sentences = list_broken_promises(result)
    print_tables(result, plan.factor)
    for sentence in sentences:
        print(f"broken: {sentence}")
    print(json.dumps(summarise_soak(result, bundle, sentences)))
    return 1 if sentences else 0


def check_ready(url: str) -> None:
    """Raise ServerError unless /readyz answers 200."""
    try:
        response = httpx.get(f"{url}/readyz", trust_env=False)
    except httpx.TransportError as error:
        raise ServerError(f"{url} did not answer ({error})") from error
    if response.status_code != OK:
        raise ServerError(f"{url}/readyz answered {response.status_code}: {response.text[:200]}")


async def load_server(server: Process, head: Head, bundle: Path, plan: SoakPlan) -> SoakResult:
    """Measure the capacity, then send the load while memory is sampled and faulty clients come."""
    parts = urlsplit(server.url)
    address = Address(str(parts.hostname), int(parts.port or 0))
    contexts, deadline_us = read_contexts(bundle, SOAK_CONTEXTS), round(plan.deadline_ms * 1e3)
    requests = mix_requests(head, contexts, REQUEST_COUNT, deadline_us, str(address))
    generator = LoadGenerator(address, requests, head, plan.client_timeout)
    pin_client()
    gc.freeze()  # what was made so far is not looked through again
    capacity = await generator.measure_capacity(plan.capacity_seconds)
    rate, seconds = plan.factor * capacity, plan.load_seconds
    announcement = f"capacity {capacity:,.0f} requests/s; {rate:,.0f} for {seconds:g} s"
    Console(stderr=True).print(announcement, highlight=False, soft_wrap=True)
    memory, tally = Memory(), Tally()
    sampling = asyncio.create_task(sample_memory(server, memory, seconds))
    probing = asyncio.create_task(probe_health(address, seconds, plan.client_timeout, tally))
    clients = [FaultyClient(name, f"127.0.0.{number}") for number, name in enumerate(MISDEEDS, 2)]
    misbehaving = asyncio.gather(
        *(
            run_faulty_client(client, MISDEEDS[client.name], address, requests, head, seconds, plan.client_timeout)
            for client in clients
        )
    )
    sending_rate = await generator.send_open_loop(rate, seconds, plan.connections, tally)
    await misbehaving
    await sampling
    promises, health = plan.promises, await probing
    return SoakResult(capacity, rate, sending_rate, seconds, plan.deadline_ms, promises, tally, memory, health, clients)


def pin_client() -> None:
    """Keep this process off the server's core."""
    os.sched_setaffinity(0, {pick_cores()[1]})


async def sample_memory(server: Process, memory: Memory, seconds: float) -> None:
    """Sample the server's memory, evenly over `seconds`."""
    for _ in range(MEMORY_SAMPLES):
        memory.samples.append(server.memory_mib())
        await asyncio.sleep(seconds / MEMORY_SAMPLES)
