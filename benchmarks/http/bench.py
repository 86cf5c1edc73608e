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

from benchmarks.http.client.requests import Answer, Question
from benchmarks.http.client.wrk import Load
from benchmarks.http.servers.bundles import CONSTANT, MODEL, constant_bundle
from benchmarks.http.servers.processes import Process, cores, free_port, python

from .client import requests, wrk

CONNECTIONS = (16, 1, 128)  # the first is what ratios are made of
WARM_SECONDS = 1
UVICORNS = ("date", "server", "connection")  # headers that are not the app's
TITLES = {
    "infer": "/v2 infer, binary",
    "echo": "bare ASGI echo of the same bytes",
    "json": "/v1/topk, JSON",
    "fastapi": "FastAPI route by hand, orjson",
}
Read = Callable[[Mapping[str, str], bytes], Answer]
Loads = dict[str, dict[int, list[Load]]]  # contender -> connections -> one a round
Medians = dict[str, dict[int, Load]]


@dataclass(frozen=True)
class Contender:
    """One server with one body. constant: the ids that it must answer, 0..k-1, are checked before it is measured."""

    name: str
    url: str
    question: Question
    read: Read
    k: int

    def check(self) -> httpx.Response:
        """One real request; raises ServerError unless the answer is the constant."""
        response = requests.ask(self.url, self.question)
        found = self.read(response.headers, response.content).ids
        if not np.array_equal(found, np.arange(self.k)[None]):
            raise ServerError(f"{self.name} answered ids {found.tolist()} instead of 0 to {self.k - 1}")
        return response


def bench(cache: Path, rounds: int, seconds: float, k: int) -> None:
    """Servers, checks, interleaved rounds, table, JSON."""
    wrk.check_installed()
    with ExitStack() as stack:
        contenders = started(stack, cache, k)
        loads = measured(contenders, rounds, seconds)
    medians = {name: {count: wrk.median(found) for count, found in each.items()} for name, each in loads.items()}
    show(medians, rounds, seconds)
    print(json.dumps(summary(medians, rounds, seconds, k)))


def started(stack: ExitStack, cache: Path, k: int) -> list[Contender]:
    """Every contender, answering rightly. What the echoes send is what our own server answered."""
    repository = constant_bundle(cache).parent.parent
    context = np.random.default_rng(1).standard_normal((1, CONSTANT[1])).astype(np.float32)
    infer = (requests.infer(MODEL, context, k), requests.infer_answer, k)
    topk = (requests.topk(MODEL, context, k), requests.topk_answer, k)
    process = launched(stack, cache, "constant_server", repository)
    ours = [Contender("infer", process.url, *infer), Contender("json", process.url, *topk)]
    process.wait(ours[0].check)
    theirs = []
    for kind, name, mine, asked in (("bare", "echo", ours[0], infer), ("fastapi", "fastapi", ours[1], topk)):
        answer = kept(mine.check(), cache / f"{mine.name}.answer")
        process = launched(stack, cache, "echo_server", answer, kind)
        theirs.append(Contender(name, process.url, *asked))
        process.wait(theirs[-1].check)
    return [ours[0], theirs[0], ours[1], theirs[1]]


def launched(stack: ExitStack, cache: Path, module: str, path: Path, *arguments: str) -> Process:
    """One of this package's servers, which ends with `stack`."""
    port = free_port()
    command = python(f"benchmarks.http.servers.{module}", path, port, *arguments)
    return stack.enter_context(Process("-".join([module, *arguments]), command, port, cache / "logs"))


def kept(response: httpx.Response, path: Path) -> Path:
    """The answer as a file that an echo server reads."""
    headers = {name: value for name, value in response.headers.items() if name not in UVICORNS}
    path.write_bytes(json.dumps(headers).encode() + b"\n" + response.content)
    return path


def measured(contenders: list[Contender], rounds: int, seconds: float) -> Loads:
    """Every contender at every number of connections, one after the other, round by round."""
    core, told = cores()[1], Console(stderr=True)
    for each in contenders:
        wrk.load(each.url, [each.question], CONNECTIONS[0], WARM_SECONDS, core)
    loads: Loads = {each.name: {count: [] for count in CONNECTIONS} for each in contenders}
    for turn in range(rounds):
        for count in CONNECTIONS:
            for each in contenders:
                loads[each.name][count].append(wrk.load(each.url, [each.question], count, seconds, core))
        rates = ", ".join(f"{name} {found[CONNECTIONS[0]][-1].rps:,.0f}" for name, found in loads.items())
        told.print(f"round {turn + 1} of {rounds}: {rates} requests/s", highlight=False, soft_wrap=True)
    return loads


def show(medians: Medians, rounds: int, seconds: float) -> None:
    """The table, on stdout."""
    table = Table(title=f"one row of {CONSTANT[1]} floats, constant answer; medians of {rounds} x {seconds:g} s")
    for column in ("server", "connections", "requests/s", "p50 us", "p99 us", "p99.9 us"):
        table.add_column(column, justify="left" if column == "server" else "right")
    for name, loads in medians.items():
        for count, found in sorted(loads.items()):
            figures = [f"{value:,.0f}" for value in (found.rps, found.p50, found.p99, found.p999)]
            table.add_row(TITLES[name], str(count), *figures)
    Console(width=120).print(table)


def summary(medians: Medians, rounds: int, seconds: float, k: int) -> dict[str, object]:
    """The JSON line: ratios of the medians at 16 connections, and all latencies in us."""
    rps = {name: loads[CONNECTIONS[0]].rps for name, loads in medians.items()}
    return {
        "infer_ratio": round(rps["infer"] / rps["echo"], 3),
        "json_ratio": round(rps["json"] / rps["fastapi"], 3),
        **{f"{name}_rps": round(rate) for name, rate in rps.items()},
        **{
            f"{name}_us": {count: [found.p50, found.p99, found.p999] for count, found in sorted(loads.items())}
            for name, loads in medians.items()
        },
        "rounds": rounds,
        "seconds": seconds,
        "k": k,
    }
