"""Two processes beside one, under load of wrk on the same cores."""

from __future__ import annotations

import os
import resource
import statistics
from pathlib import Path

import httpx
from shortlist.errors import ServerError

from benchmarks.common.processes import Process, free_port, python_command
from benchmarks.http.client import requests, wrk

from .contexts import NAME, make_contexts
from .heads import open_bundle

CLASSES, DIM, K = 6_000, 64, 5  # some 200 us a row, and within the caches: memory does not decide
CONNECTIONS = 16
ROUNDS, SECONDS = 3, 6.0
COUNTS = (1, 2)


def measure_speedup(cache: Path) -> dict[str, object]:
    """Requests a second of one process and of two, in turns, and the CPU seconds that wrk took."""
    bundle = open_bundle(cache, CLASSES, DIM, "full")
    request = requests.make_infer(NAME, make_contexts(1, DIM), K)
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    rates: dict[int, list[float]] = {count: [] for count in COUNTS}
    seconds: dict[int, float] = dict.fromkeys(COUNTS, 0.0)
    for _ in range(ROUNDS):
        for count in COUNTS:
            port = free_port()
            command = python_command("shortlist", "serve", bundle.folder.parents[1], "--port", port)
            command += ["--processes", str(count), "--threads", "1", "--precision-share", "0"]
            with Process(f"processes-{count}", ["taskset", "-c", cores, *command], port, cache / "logs") as server:
                server.wait_ready(lambda server=server, count=count: check_processes(server.url, count))  # type: ignore[misc]
                wrk.run_wrk(server.url, [request], CONNECTIONS, 1, cores)
                before = count_child_seconds()
                rates[count].append(wrk.run_wrk(server.url, [request], CONNECTIONS, SECONDS, cores).rps)
                seconds[count] += count_child_seconds() - before
    medians = {count: statistics.median(each) for count, each in rates.items()}
    return {
        "speedup": round(medians[COUNTS[1]] / medians[COUNTS[0]], 3),
        "requests_per_second": {count: round(rate) for count, rate in medians.items()},
        "wrk_cpu_share": {count: round(each / (ROUNDS * SECONDS), 2) for count, each in seconds.items()},
    }


def check_processes(url: str, count: int) -> None:
    """Raise ServerError unless so many processes are ready; a server of one process does not count them."""
    try:
        text = httpx.get(f"{url}/metrics", trust_env=False).text
    except httpx.TransportError as error:
        raise ServerError(f"{url} does not answer yet: {error}") from None
    if f"shortlist_processes {count:.1f}" not in text and (count > 1 or "shortlist_ready 1.0" not in text):
        raise ServerError(f"{url} has not {count} processes ready yet")


def count_child_seconds() -> float:
    """CPU seconds of the children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
