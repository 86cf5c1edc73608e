"""`peers`: this service beside others, all with the same dense layer, on one core."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from shortlist.bundle.reader import Bundle
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import FloatArray, TopK
from shortlist.errors import BadInput, ServerError
from shortlist.evaluation.statistics import compute_precision
from shortlist.head import Head, load

from benchmarks.common.processes import Process, free_port, pick_cores, python_command
from benchmarks.http.client.requests import Request, ResponseArrays
from benchmarks.http.client.wrk import Load
from benchmarks.http.servers.bundles import copy_without_certificate, link_alone, read_contexts, resolve_bundle
from benchmarks.http.servers.peer_servers import LitServe, MLServer, Peer, PeerSetup, Triton

from .client import requests, wrk

PEER_CONNECTIONS = 16
PEER_ROWS = 64
PEER_WARM_SECONDS = 2
DENSE_LAYER = "dense layer"
DENSE_LOGPROB_TOLERANCE = 1e-3  # log-probabilities of a dense answer may differ by this
LEAST_DENSE_P1 = 0.98  # P@1 of a dense answer: near ties may change places
PEER_COLUMNS = ("server", "answers with", "protocol", "requests/s", "p50 ms", "p99 ms", "P@1", "remarks")
ReadResponse = Callable[[Mapping[str, str], bytes], ResponseArrays]


@dataclass
class Row:
    """One line of the table. process: None where it could not be started, and `remark` says why."""

    title: str
    answers: str
    protocol: str
    process: Process | None = None
    requests: Sequence[Request] = ()
    p1: float = 0.0
    load: Load | None = None
    remark: str = ""

    def cells(self) -> list[str]:
        """The values of the columns `PEER_COLUMNS`, as text."""
        figures = ["-"] * 4
        if self.load is not None:
            milliseconds = [f"{value / 1e3:.2f}" for value in (self.load.p50, self.load.p99)]
            figures = [f"{self.load.rps:,.0f}", *milliseconds, f"{self.p1:.3f}"]
        return [self.title, self.answers, self.protocol, *figures, self.remark]


def run_peers(cache: Path, bundle: Path, venvs: Path, rounds: int, seconds: float, k: int, out: Path | None) -> None:
    """Start and check every server, measure them in turns, print the table and write it to `out`."""
    wrk.require_wrk()
    bundle = resolve_bundle(bundle)
    head = load(bundle, threads=1)
    if head.dense is None:
        raise BadInput(f"{bundle} was exported with --no-dense, so there is nothing to compare on: export it with")
    contexts = read_contexts(bundle, PEER_ROWS)
    truth = head.run(head.dense, contexts, k, UNRESTRICTED).topk("exact")
    with ExitStack() as stack:
        rows = start_ours(stack, cache, bundle, head, contexts, truth)
        for peer in (Triton(head.manifest.dim), MLServer(), LitServe()):
            setup = PeerSetup(venvs / peer.name, cache / "peers" / peer.name, bundle / head.manifest.graphs["dense"], k)
            rows.append(start_peer(stack, cache, peer, setup, contexts, truth))
        measure_rows(rows, rounds, seconds)
    text = format_table(rows, head, rounds, seconds, k)
    print(text)
    if out is not None:
        out.write_text(text + "\n")


def start_ours(stack: ExitStack, cache: Path, bundle: Path, head: Head, contexts: FloatArray, truth: TopK) -> list[Row]:
    """Our server with requests for its head and for proved answers; and again, where dense gives exact answers."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    dense = copy_without_certificate(Bundle(bundle, verify=False), folder / "dense").parent.parent
    kinds = [f"{head.manifest.method} head", f"{DENSE_LAYER}, proved"][: 1 + (head.certified is not None)]
    rows = []
    for repository, kinds_of in ((link_alone(bundle, folder / "head"), kinds), (dense, [DENSE_LAYER])):
        port = free_port()
        command = python_command("shortlist", "serve", repository, "--port", port, "--threads", 1)
        process = stack.enter_context(Process(f"shortlist-{repository.name}", command, port, cache / "logs"))
        rows += [make_our_row(process, head.manifest.name, kind, contexts, truth) for kind in kinds_of]
        process.pause()
    return rows


def make_our_row(process: Process, name: str, kind: str, contexts: FloatArray, truth: TopK) -> Row:
    """A row of ours, its answers compared with the truth: the head's, or exact ones."""
    parameters = {"exact": True} if kind.startswith(DENSE_LAYER) else {}
    row = Row("Shortlist", kind, "v2, binary", process)
    row.requests = [requests.make_infer(name, context[None], truth.ids.shape[1], **parameters) for context in contexts]
    process.wait_ready(lambda: requests.send_request(process.url, row.requests[0]))
    responses = send_all(process.url, row.requests, requests.read_infer)
    judge = check_exact if kind == DENSE_LAYER else measure_p1  # log-probabilities of proved answers are within bounds
    row.p1 = judge(responses, truth)
    return row


def start_peer(stack: ExitStack, cache: Path, peer: Peer, setup: PeerSetup, contexts: FloatArray, truth: TopK) -> Row:
    """A peer that answers rightly, paused; or why there is none."""
    row = Row(peer.title, DENSE_LAYER, peer.protocol)
    Console(stderr=True).print(f"starting {peer.title}", highlight=False, soft_wrap=True)
    try:
        setup.folder.mkdir(parents=True, exist_ok=True)
        peer.install(setup.venv)
        launch = peer.launch(setup)
        process = stack.enter_context(
            Process(peer.name, launch.command, launch.port, cache / "logs", launch.env, pauses=peer.pauses)
        )
        row.requests = [peer.make_request(context[None], setup.k) for context in contexts]
        process.wait_ready(lambda: requests.send_request(process.url, row.requests[0]))
        row.p1 = check_exact(send_all(process.url, row.requests, peer.read_response), truth)
        process.pause()
        row.process = process
    except (ServerError, OSError) as error:
        row.remark = f"not measured: {error}"
        Console(stderr=True).print(f"{peer.title}: {row.remark}", highlight=False, soft_wrap=True)
    return row


def send_all(url: str, batch: Sequence[Request], read: ReadResponse) -> ResponseArrays:
    """The arrays of the responses to all of `batch`; raises ServerError."""
    responses = [requests.send_request(url, request) for request in batch]
    parts = [read(response.headers, response.content) for response in responses]
    return ResponseArrays(
        np.concatenate([part.ids for part in parts]), np.concatenate([part.logprobs for part in parts])
    )


def measure_p1(responses: ResponseArrays, truth: TopK) -> float:
    """P@1 of the ids received, against the exact ones."""
    return compute_precision(responses.ids, truth.ids, 1)


def check_exact(responses: ResponseArrays, truth: TopK) -> float:
    """P@1 of responses that must be the dense layer's; raises ServerError where they are not."""
    p1, off = measure_p1(responses, truth), float(np.abs(responses.logprobs - truth.logprobs).max())
    if p1 < LEAST_DENSE_P1 or not off <= DENSE_LOGPROB_TOLERANCE:
        raise ServerError(f"its answers are wrong: P@1 {p1:.3f}, log-probabilities off by up to {off:.2g}")
    return p1


def measure_rows(rows: Sequence[Row], rounds: int, seconds: float) -> None:
    """Load every server that runs, in turns; the others are stopped meanwhile where they bear it, since some poll."""
    loads: dict[int, list[Load]] = {}
    for round_number in range(rounds):
        for number, row in enumerate(rows):
            if row.process is None or row.remark:
                continue
            try:
                with row.process.running():
                    with contextlib.suppress(ServerError):  # what had waited while it was stopped may be too late
                        wrk.run_wrk(row.process.url, row.requests, PEER_CONNECTIONS, PEER_WARM_SECONDS, pick_cores()[1])
                    loads.setdefault(number, []).append(
                        wrk.run_wrk(row.process.url, row.requests, PEER_CONNECTIONS, seconds, pick_cores()[1])
                    )
            except ServerError as error:
                row.remark = f"failed under load: {error}"
        rates = ", ".join(f"{rows[number].title} {of_row[-1].rps:,.0f}" for number, of_row in loads.items())
        Console(stderr=True).print(
            f"round {round_number + 1} of {rounds}: {rates} requests/s", highlight=False, soft_wrap=True
        )
    for number, of_row in loads.items():
        rows[number].load = None if rows[number].remark else wrk.median_load(of_row)


def format_table(rows: Sequence[Row], head: Head, rounds: int, seconds: float, k: int) -> str:
    """The rows as a Markdown table under a sentence on how they were measured."""
    manifest = head.manifest
    at_export = f" The head's P@1 at its export was {manifest.quality.p_at_1:.4f}." if manifest.quality else ""
    lines = [
        f"V = {manifest.classes:,}, d = {manifest.dim}, single rows ({PEER_ROWS} in turn), k = {k}, {PEER_CONNECTIONS} "
        f"connections of wrk on one core, the server on another with one thread; medians of {rounds} x {seconds:g} s."
        + at_export,
        "",
        "| " + " | ".join(PEER_COLUMNS) + " |",
        "|" + "---|" * len(PEER_COLUMNS),
    ]
    return "\n".join(lines + ["| " + " | ".join(cell or " " for cell in row.cells()) + " |" for row in rows])
