"""`bench`: what HTTP costs, beside the least that it could cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
from rich.console import Console
from rich.table import Table
from shortlist.errors import ServerError

from benchmarks.common.processes import Process, free_port, pick_cores, python_command
from benchmarks.http.client.requests import Request, ResponseArrays
from benchmarks.http.client.wrk import Load
from benchmarks.http.servers.bundles import CONSTANT_SHAPE, MODEL_NAME, make_constant_bundle

from .client import requests, wrk

CONNECTION_COUNTS = (16, 1, 128)  # the first is what ratios are made of
BENCH_WARM_SECONDS = 1
UVICORN_HEADERS = ("date", "server", "connection")  # headers that are not the app's
API_KEY = "key-of-the-bench-and-nobody-else"
SERVER_TITLES = {
    "infer": "/v2 infer, binary",
    "infer_key": "the same with an API key",
    "echo": "bare ASGI echo of the same bytes",
    "json": "/v1/topk, JSON",
    "json_key": "the same with an API key",
    "fastapi": "FastAPI route by hand, orjson",
}
ReadResponse = Callable[[Mapping[str, str], bytes], ResponseArrays]
Loads = dict[str, dict[int, list[Load]]]  # server -> connections -> one a round
Medians = dict[str, dict[int, Load]]


@dataclass(frozen=True)
class MeasuredServer:
    """One server with the request that it gets; `read` takes the arrays out of its responses, ids 0..k-1."""

    name: str
    url: str
    request: Request
    read: ReadResponse
    k: int

    def check(self) -> httpx.Response:
        """Send one request; raises ServerError unless the response is the constant."""
        response = requests.send_request(self.url, self.request)
        ids = self.read(response.headers, response.content).ids
        if not np.array_equal(ids, np.arange(self.k)[None]):
            raise ServerError(f"{self.name} answered ids {ids.tolist()} instead of 0 to {self.k - 1}")
        return response


def run_bench(cache: Path, rounds: int, seconds: float, k: int) -> None:
    """Start and check every server, measure them in turns, print the table and a line of JSON."""
    wrk.require_wrk()
    with ExitStack() as stack:
        servers = start_servers(stack, cache, k)
        loads = measure_loads(servers, rounds, seconds)
    medians = {
        name: {count: wrk.median_load(rounds_of) for count, rounds_of in each.items()} for name, each in loads.items()
    }
    print_table(medians, rounds, seconds)
    print(json.dumps(summarise_bench(medians, rounds, seconds, k)))


def start_servers(stack: ExitStack, cache: Path, k: int) -> list[MeasuredServer]:
    """Every server, its response checked. What the echoes send is what our own server responded."""
    repository = make_constant_bundle(cache).parent.parent
    context = np.random.default_rng(1).standard_normal((1, CONSTANT_SHAPE[1])).astype(np.float32)
    infer = (requests.make_infer(MODEL_NAME, context, k), requests.read_infer, k)
    topk = (requests.make_topk(MODEL_NAME, context, k), requests.read_topk, k)
    process = start_server(stack, cache, "constant_server", repository)
    ours = [MeasuredServer("infer", process.url, *infer), MeasuredServer("json", process.url, *topk)]
    process.wait_ready(ours[0].check)
    keyed = start_server(stack, cache, "constant_server", repository, keys=f"bench ask {API_KEY}")
    ours += [
        MeasuredServer("infer_key", keyed.url, *with_key(infer)),
        MeasuredServer("json_key", keyed.url, *with_key(topk)),
    ]
    keyed.wait_ready(ours[2].check)
    theirs = []
    for kind, name, server, request in (("bare", "echo", ours[0], infer), ("fastapi", "fastapi", ours[1], topk)):
        path = save_response(server.check(), cache / f"{server.name}.answer")
        process = start_server(stack, cache, "echo_server", path, kind)
        theirs.append(MeasuredServer(name, process.url, *request))
        process.wait_ready(theirs[-1].check)
    return [ours[0], ours[2], theirs[0], ours[1], ours[3], theirs[1]]


def with_key(measured: tuple[Request, ReadResponse, int]) -> tuple[Request, ReadResponse, int]:
    """The same request with the API key of the bench."""
    request, read, k = measured
    headers = {**request.headers, "Authorization": f"Bearer {API_KEY}"}
    return Request(request.path, headers, request.body), read, k


def start_server(
    stack: ExitStack, cache: Path, module: str, path: Path, *arguments: str, keys: str | None = None
) -> Process:
    """One of this package's servers, which ends with `stack`. keys: the API keys that it knows, None for no keys."""
    port = free_port()
    command = python_command(f"benchmarks.http.servers.{module}", path, port, *arguments)
    name = "-".join([module, *arguments, *(["keys"] if keys else [])])
    env = {"SHORTLIST_API_KEYS": keys} if keys else {}
    return stack.enter_context(Process(name, command, port, cache / "logs", env))


def save_response(response: httpx.Response, path: Path) -> Path:
    """Write the response to a file that an echo server reads; returns `path`."""
    headers = {name: value for name, value in response.headers.items() if name not in UVICORN_HEADERS}
    path.write_bytes(json.dumps(headers).encode() + b"\n" + response.content)
    return path


def measure_loads(servers: list[MeasuredServer], rounds: int, seconds: float) -> Loads:
    """Load every server at every number of connections, one after the other, round by round."""
    core, console = pick_cores()[1], Console(stderr=True)
    for server in servers:
        wrk.run_wrk(server.url, [server.request], CONNECTION_COUNTS[0], BENCH_WARM_SECONDS, core)
    loads: Loads = {server.name: {count: [] for count in CONNECTION_COUNTS} for server in servers}
    for round_number in range(rounds):
        for count in CONNECTION_COUNTS:
            for server in servers:
                loads[server.name][count].append(wrk.run_wrk(server.url, [server.request], count, seconds, core))
        rates = ", ".join(f"{name} {by_count[CONNECTION_COUNTS[0]][-1].rps:,.0f}" for name, by_count in loads.items())
        console.print(f"round {round_number + 1} of {rounds}: {rates} requests/s", highlight=False, soft_wrap=True)
    return loads


def print_table(medians: Medians, rounds: int, seconds: float) -> None:
    table = Table(title=f"one row of {CONSTANT_SHAPE[1]} floats, constant answer; medians of {rounds} x {seconds:g} s")
    for column in ("server", "connections", "requests/s", "p50 us", "p99 us", "p99.9 us"):
        table.add_column(column, justify="left" if column == "server" else "right")
    for name, loads in medians.items():
        for count, load in sorted(loads.items()):
            figures = [f"{value:,.0f}" for value in (load.rps, load.p50, load.p99, load.p999)]
            table.add_row(SERVER_TITLES[name], str(count), *figures)
    Console(width=120).print(table)


def summarise_bench(medians: Medians, rounds: int, seconds: float, k: int) -> dict[str, object]:
    """The JSON line: ratios of the medians at 16 connections, and all latencies in us."""
    rps = {name: loads[CONNECTION_COUNTS[0]].rps for name, loads in medians.items()}
    return {
        "infer_ratio": round(rps["infer"] / rps["echo"], 3),
        "json_ratio": round(rps["json"] / rps["fastapi"], 3),
        "infer_key_ratio": round(rps["infer_key"] / rps["infer"], 3),
        "json_key_ratio": round(rps["json_key"] / rps["json"], 3),
        **{f"{name}_rps": round(rate) for name, rate in rps.items()},
        **{
            f"{name}_us": {count: [load.p50, load.p99, load.p999] for count, load in sorted(loads.items())}
            for name, loads in medians.items()
        },
        "rounds": rounds,
        "seconds": seconds,
        "k": k,
    }
