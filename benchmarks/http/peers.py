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
from shortlist.head import Head, load

from benchmarks.http.client.requests import Answer, Question
from benchmarks.http.client.wrk import Load
from benchmarks.http.servers.bundles import checked, contexts_of, served_alone, without_proofs
from benchmarks.http.servers.peer_servers import LitServe, MLServer, Peer, Place, Triton
from benchmarks.http.servers.processes import Process, cores, free_port, python

from .client import requests, wrk

CONNECTIONS = 16
ROWS = 64
WARM_SECONDS = 2
DENSE = "dense layer"
NEAR = 1e-3  # log-probabilities of a dense answer may differ by this
LEAST = 0.98  # P@1 of a dense answer: near ties may change places
COLUMNS = ("server", "answers with", "protocol", "requests/s", "p50 ms", "p99 ms", "P@1", "remarks")
Read = Callable[[Mapping[str, str], bytes], Answer]


@dataclass
class Row:
    """One line of the table. process: None where it could not be started, and `remark` says why."""

    title: str
    answers: str
    protocol: str
    process: Process | None = None
    asked: Sequence[Question] = ()
    p1: float = 0.0
    load: Load | None = None
    remark: str = ""

    def cells(self) -> list[str]:
        """As in COLUMNS."""
        figures = ["-"] * 4
        if self.load is not None:
            milliseconds = [f"{value / 1e3:.2f}" for value in (self.load.p50, self.load.p99)]
            figures = [f"{self.load.rps:,.0f}", *milliseconds, f"{self.p1:.3f}"]
        return [self.title, self.answers, self.protocol, *figures, self.remark]


def peers(cache: Path, given: Path, venvs: Path, rounds: int, seconds: float, k: int, out: Path | None) -> None:
    """Start all, check all, measure in turns, print the table."""
    wrk.check_installed()
    bundle = checked(given)
    head = load(bundle, threads=1)
    if head.dense is None:
        raise BadInput(f"{bundle} was exported with --no-dense, so there is nothing to compare on: export it with")
    contexts = contexts_of(bundle, ROWS)
    truth = head.run(head.dense, contexts, k, UNRESTRICTED).topk("exact")
    with ExitStack() as stack:
        rows = ours(stack, cache, bundle, head, contexts, truth)
        for peer in (Triton(head.manifest.dim), MLServer(), LitServe()):
            place = Place(venvs / peer.name, cache / "peers" / peer.name, bundle / head.manifest.graphs["dense"], k)
            rows.append(theirs(stack, cache, peer, place, contexts, truth))
        measure(rows, rounds, seconds)
    text = table(rows, head, rounds, seconds, k)
    print(text)
    if out is not None:
        out.write_text(text + "\n")


def ours(stack: ExitStack, cache: Path, bundle: Path, head: Head, contexts: FloatArray, truth: TopK) -> list[Row]:
    """Our server, asked for its head's answers and for proved ones; and again, where dense gives the exact ones."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    dense = without_proofs(Bundle(bundle, verify=False), folder / "dense").parent.parent
    kinds = [f"{head.manifest.method} head", f"{DENSE}, proved"][: 1 + (head.certified is not None)]
    rows = []
    for repository, asked in ((served_alone(bundle, folder / "head"), kinds), (dense, [DENSE])):
        port = free_port()
        command = python("shortlist", "serve", repository, "--port", port, "--threads", 1)
        process = stack.enter_context(Process(f"shortlist-{repository.name}", command, port, cache / "logs"))
        rows += [own_row(process, head.manifest.name, kind, contexts, truth) for kind in asked]
        process.pause()
    return rows


def own_row(process: Process, name: str, kind: str, contexts: FloatArray, truth: TopK) -> Row:
    """A row of ours, its answers compared with the truth: the head's, or exact ones."""
    parameters = {"exact": True} if kind.startswith(DENSE) else {}
    row = Row("Shortlist", kind, "v2, binary", process)
    row.asked = [requests.infer(name, context[None], truth.ids.shape[1], **parameters) for context in contexts]
    process.wait(lambda: requests.ask(process.url, row.asked[0]))
    found = answered(process.url, row.asked, requests.infer_answer)
    row.p1 = exact(found, truth) if kind == DENSE else precise(found, truth)  # proved ones are within bounds
    return row


def theirs(stack: ExitStack, cache: Path, peer: Peer, place: Place, contexts: FloatArray, truth: TopK) -> Row:
    """A peer that answers rightly, paused; or why there is none."""
    row = Row(peer.title, DENSE, peer.protocol)
    Console(stderr=True).print(f"starting {peer.title}", highlight=False, soft_wrap=True)
    try:
        place.folder.mkdir(parents=True, exist_ok=True)
        peer.install(place.venv)
        launch = peer.launch(place)
        process = stack.enter_context(
            Process(peer.name, launch.command, launch.port, cache / "logs", launch.env, pauses=peer.pauses)
        )
        row.asked = [peer.question(context[None], place.k) for context in contexts]
        process.wait(lambda: requests.ask(process.url, row.asked[0]))
        row.p1 = exact(answered(process.url, row.asked, peer.answer), truth)
        process.pause()
        row.process = process
    except (ServerError, OSError) as error:
        row.remark = f"not measured: {error}"
        Console(stderr=True).print(f"{peer.title}: {row.remark}", highlight=False, soft_wrap=True)
    return row


def answered(url: str, asked: Sequence[Question], read: Read) -> Answer:
    """The answers to all rows; raises ServerError."""
    responses = [requests.ask(url, question) for question in asked]
    parts = [read(response.headers, response.content) for response in responses]
    return Answer(np.concatenate([part.ids for part in parts]), np.concatenate([part.logprobs for part in parts]))


def precise(found: Answer, truth: TopK) -> float:
    """P@1."""
    return float((found.ids[:, 0] == truth.ids[:, 0]).mean())


def exact(found: Answer, truth: TopK) -> float:
    """P@1 of answers that must be the dense layer's; raises ServerError where they are not."""
    p1, off = precise(found, truth), float(np.abs(found.logprobs - truth.logprobs).max())
    if p1 < LEAST or not off <= NEAR:
        raise ServerError(f"its answers are wrong: P@1 {p1:.3f}, log-probabilities off by up to {off:.2g}")
    return p1


def measure(rows: Sequence[Row], rounds: int, seconds: float) -> None:
    """Every server that runs, in turns; the others are stopped meanwhile where they bear it, for some poll."""
    loads: dict[int, list[Load]] = {}
    for turn in range(rounds):
        for number, row in enumerate(rows):
            if row.process is None or row.remark:
                continue
            try:
                with row.process.running():
                    with contextlib.suppress(ServerError):  # what had waited while it was stopped may be too late
                        wrk.load(row.process.url, row.asked, CONNECTIONS, WARM_SECONDS, cores()[1])
                    loads.setdefault(number, []).append(
                        wrk.load(row.process.url, row.asked, CONNECTIONS, seconds, cores()[1])
                    )
            except ServerError as error:
                row.remark = f"failed under load: {error}"
        rates = ", ".join(f"{rows[number].title} {found[-1].rps:,.0f}" for number, found in loads.items())
        Console(stderr=True).print(f"round {turn + 1} of {rounds}: {rates} requests/s", highlight=False, soft_wrap=True)
    for number, found in loads.items():
        rows[number].load = None if rows[number].remark else wrk.median(found)


def table(rows: Sequence[Row], head: Head, rounds: int, seconds: float, k: int) -> str:
    """Markdown."""
    manifest = head.manifest
    exported = f" The head's P@1 at its export was {manifest.quality.p_at_1:.4f}." if manifest.quality else ""
    lines = [
        f"V = {manifest.classes:,}, d = {manifest.dim}, single rows ({ROWS} in turn), k = {k}, {CONNECTIONS} "
        f"connections of wrk on one core, the server on another with one thread; medians of {rounds} x {seconds:g} s."
        + exported,
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + "---|" * len(COLUMNS),
    ]
    return "\n".join(lines + ["| " + " | ".join(cell or " " for cell in row.cells()) + " |" for row in rows])
