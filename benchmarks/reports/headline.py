"""What `make bench` prints: our heads and the best peer beside dense, in one interleaved run, and a line of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from shortlist.evaluation.timing import Call, find_fastest, time_calls
from shortlist.head import Head

from benchmarks.common.dense import TopK, open_spellings
from benchmarks.common.runs import Run, Store
from benchmarks.contenders.registry import Contender
from benchmarks.datasets.registry import DataSet
from benchmarks.sweep.harness import Harness, limit_threads
from benchmarks.sweep.heads import PROMISED_HEAD, Precision, measure_precision, open_heads
from benchmarks.sweep.peers import find_best_peer, measure_on_all_rows, run_near_promise
from benchmarks.sweep.tuned import tune_head

HEADLINE_K = 5
HEADLINE_BATCHES = (1, 8, 16, 32, 64)
EXACT_ANSWERS = f"{PROMISED_HEAD}, exact"  # the same bundle's exact answers
AS_EXPORTED = f"{PROMISED_HEAD}, as exported"  # searching each row until its own promise is kept
SWEPT_ROWS = 2048  # rows of the sweep that finds the best peer
HEADLINE_COLUMNS = (
    "method", "W", "N", "P@1", "P@5", "P@10", "us (batch 1)", "p99", "x dense",
    "us (batch 8)", "x dense", "us (batch 16)", "x dense",
    "us (batch 32)", "x dense", "us (batch 64)", "x dense", "dense share",
)  # fmt: skip

Figures = dict[str, dict[str, float]]  # contender -> mean, median, p99 in us


@dataclass(frozen=True)
class Peer:
    """The best peer and what its sweep found, or why there is none."""

    run: Run | None
    contender: Contender | None
    p1: float = 0.0
    p5: float = 0.0


def print_headline(data: DataSet, cache: Path, threads: int, rows: int, *, peers: bool) -> None:
    """Heads, precision, the best peer, times, table, JSON."""
    folder = cache / ("shipped" if "shipped" in data.name else "wikitext-2")
    heads = open_heads(data, folder / "repository", threads)
    heads[AS_EXPORTED] = heads[PROMISED_HEAD]
    heads[PROMISED_HEAD] = tune_head(heads[PROMISED_HEAD], data, folder / "tuned")
    precisions_of = {name: measure_precision(head, data) for name, head in heads.items()}
    peer = find_peer(data, Store(cache / "runs"), threads) if peers else Peer(None, None)
    timings = {batch: time_contenders(data, heads, peer, cache, threads, rows, batch) for batch in HEADLINE_BATCHES}
    print_table(data, heads, precisions_of, peer, timings)
    print(json.dumps(summarise_headline(data, precisions_of, peer, timings, threads, rows)))


def find_peer(data: DataSet, store: Store, threads: int) -> Peer:
    """The fastest peer that keeps the promise, by a sweep whose runs stay on disk; failures are printed to stderr."""
    harness = Harness(data, store, threads, SWEPT_ROWS)
    runs = list(run_near_promise(harness))
    for sentence in sorted({f"{run.contender}: {run.error}" for run in runs if run.error}):
        Console(stderr=True).print(sentence, highlight=False)
    best = find_best_peer(harness, runs)
    return Peer(None, None) if best is None else Peer(*best, *measure_on_all_rows(harness, best[1]))


def time_contenders(
    data: DataSet, heads: dict[str, Head], peer: Peer, cache: Path, threads: int, rows: int, batch: int
) -> Figures:
    """The dense head (under `dense`), every head, exact answers (under `EXACT`), and the peer (under `peer`)."""
    contexts = data.test.contexts[:rows]
    dense = {name: make_topk_call(topk) for name, topk in open_spellings(data.dense, cache / "dense", threads).items()}
    spelling = find_fastest(dense, contexts, batch)
    calls: dict[str, Call] = {"dense": dense[spelling]}
    calls |= {name: make_topk_call(lambda rows, k, head=head: head.topk(rows, k).ids) for name, head in heads.items()}  # type: ignore[misc]
    calls[EXACT_ANSWERS] = make_topk_call(lambda rows, k: heads[PROMISED_HEAD].topk(rows, k, exact=True).ids)
    if peer.contender is not None:
        calls["peer"] = make_topk_call(peer.contender.topk)
    Console(stderr=True).print(f"batch {batch}: dense is {spelling}; timing {len(calls)} contenders", highlight=False)
    with limit_threads(threads, own_threads=peer.contender is not None and peer.contender.own_threads):
        return {name: times.summarize() for name, times in time_calls(calls, contexts, batch).items()}


def make_topk_call(topk: TopK) -> Call:
    """Top K as a timed call."""
    return lambda rows: topk(rows, HEADLINE_K)


def print_table(
    data: DataSet, heads: dict[str, Head], precisions_of: dict[str, Precision], peer: Peer, timings: dict[int, Figures]
) -> None:
    size = f"{len(data.test.contexts):,} held-out contexts, V = {data.dense.classes:,}, d = {data.dense.dim}"
    table = Table(title=f"{data.name}: {size}")
    for column in HEADLINE_COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right")
    table.add_row("dense", "-", "-", *["1.0000"] * 3, *format_times("dense", timings), "1.000")
    for name, head in heads.items():
        precision, settings = precisions_of[name], head.manifest.settings.model_dump()
        shares = [f"{value:.4f}" for value in (precision.p1, precision.p5, precision.p10)]
        shape = [str(head.manifest.fit["width"]), str(settings.get("candidates", settings["full_view"]))]
        table.add_row(name, *shape, *shares, *format_times(name, timings), f"{precision.dense_share:.3f}")
    table.add_row("the last one, asked for exact answers", *["-"] * 5, *format_times(EXACT_ANSWERS, timings), "-")
    if peer.run is not None:
        shares = [f"{peer.p1:.4f}", f"{peer.p5:.4f}", "-"]
        table.add_row(f"best peer: {peer.run.label}", "-", "-", *shares, *format_times("peer", timings), "-")
    Console(width=160).print(table)


def format_times(name: str, timings: dict[int, Figures]) -> Sequence[str]:
    """Median, p99 and speed-up at batch 1; median and speed-up at the larger batches."""
    one, *larger = (timings[batch] for batch in HEADLINE_BATCHES)
    cells = [f"{one[name]['median']:,.0f}", f"{one[name]['p99']:,.0f}", f"{speedup(one, name):.2f}"]
    for many in larger:
        cells += [f"{many[name]['median']:,.0f}", f"{speedup(many, name):.2f}"]
    return cells


def speedup(timing: Figures, name: str) -> float:
    """Total dense time over total time, of the same rows."""
    return timing["dense"]["mean"] / timing[name]["mean"]


def summarise_headline(
    data: DataSet,
    precisions_of: dict[str, Precision],
    peer: Peer,
    timings: dict[int, Figures],
    threads: int,
    rows: int,
) -> dict[str, object]:
    """The JSON line: the promised head's figures, and the best peer's mean time (null where none keeps the promise)."""
    precision, one = precisions_of[PROMISED_HEAD], timings[1]
    return {
        "p1": round(precision.p1, 5),
        "p5": round(precision.p5, 5),
        "p10": round(precision.p10, 5),
        "speedup_b1": round(speedup(one, PROMISED_HEAD), 2),
        "speedup_b8": round(speedup(timings[8], PROMISED_HEAD), 2),
        "speedup_b16": round(speedup(timings[16], PROMISED_HEAD), 2),
        "speedup_b32": round(speedup(timings[32], PROMISED_HEAD), 2),
        "speedup_b64": round(speedup(timings[64], PROMISED_HEAD), 2),
        "exact_speedup": round(speedup(one, EXACT_ANSWERS), 2),
        "dense_us": round(one["dense"]["mean"], 1),
        "head_us": round(one[PROMISED_HEAD]["mean"], 1),
        "head_p99_us": round(one[PROMISED_HEAD]["p99"], 1),
        "dense_share": round(precision.dense_share, 5),
        "best_peer": peer.run.label if peer.run else None,
        "best_peer_us": round(one["peer"]["mean"], 1) if peer.run else None,
        "best_peer_p1": round(peer.p1, 5) if peer.run else None,
        "best_peer_p5": round(peer.p5, 5) if peer.run else None,
        "test_contexts": len(data.test.contexts),
        "timed_rows": min(rows, len(data.test.contexts)),
        "threads": threads,
        "text": data.name,
    }
