"""A catalogue of millions of items: `make bench-catalogue`.

  python -m benchmarks.studies.catalogue [--items 2200000] [--dim 64] [--graphs]

Items and users are drawn at random with the structure of trained factors (`inputs.py`). Our head is exported and served
by the commands that users type: their minutes, memory, and seconds to ready. Then it is asked for the k best of users
that nothing was fitted to, one at a time, by one thread, and exactly; each peer at its first setting with recall@k .99
beside it, in one interleaved run. What was exported stays in the cache.

The last line is JSON. recall_worst: of the row that one in a hundred is under. peers: microseconds of a call in the
mean, our own in the same run, recall of the setting, seconds to build.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import shortlist
from rich.console import Console
from rich.table import Table
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.timing import Call
from shortlist.head import Head
from shortlist_exporter.inputs.sources import Dense

from benchmarks.common.command import make_parser, run_command
from benchmarks.sweep.harness import limit_threads

from .filters import SET_COLUMNS, SET_USERS, Members, make_sets, measure_filter, measure_sets
from .inputs import Catalogue, make_catalogue
from .measure import find_best, measure_recall, time_users
from .ours import MODEL, Export, Start, export_catalogue, measure_start
from .peers import Peer, build_peers, list_peers

MODULE = "benchmarks.studies.catalogue"
FIT_USERS, ASKED_USERS = 8_000, 1_000
OURS, EXACT, DENSE = "shortlist grouped", "exact, proved", "dense"
COLUMNS = ("", "setting", "recall@k", "1 in 100 under", "us, mean", "median", "p99", "build, s")


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="the catalogue and its bundle stay here")
    parser.add_argument("--items", type=int, default=2_200_000, help="default: %(default)s")
    parser.add_argument("--dim", type=int, default=64, help="default: %(default)s")
    parser.add_argument("-k", type=int, default=10, help="items asked for (default: %(default)s)")
    parser.add_argument("--users", type=int, default=500, help="that are asked for (default: %(default)s)")
    parser.add_argument("--graphs", action="store_true", help="build HNSW graphs, too: tens of minutes for millions")
    parser.add_argument(
        "--peers", nargs="+", metavar="NAME", help="build these alone, graphs or not: names of the table"
    )
    parser.add_argument("--no-peers", action="store_true", help="our head alone")
    return parser.parse_args()


def run_study(args: argparse.Namespace) -> None:
    """Measure; print a table and the JSON line."""
    folder = args.cache / "catalogue" / f"{args.items}x{args.dim}"
    catalogue = make_catalogue(args.items, args.dim, FIT_USERS, max(args.users, ASKED_USERS))
    export = export_catalogue(catalogue, folder)
    start = measure_start(folder / "repository")
    with limit_threads(1, own_threads=True):
        line = describe(args, export, start) | measure(args, folder, catalogue)
    print(json.dumps(line))


def measure(args: argparse.Namespace, folder: Path, catalogue: Catalogue) -> dict[str, Any]:
    """Recall and times, ours and those of peers, each beside ours."""
    head = shortlist.load(folder / "repository" / MODEL / "1", threads=1)
    users, true = catalogue.asked[: args.users], find_best(catalogue.items, catalogue.asked[: args.users], args.k)
    table = Table(title=f"{args.items:,} items x {args.dim}, k = {args.k}, one user a call, one thread")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in COLUMNS[:2] else "right")
    line = measure_ours(head, users, true, table)
    filters = Table(title="sets of random items, kept with the model")
    for column in SET_COLUMNS:
        filters.add_column(column, justify="left" if column in SET_COLUMNS[:2] else "right")
    sets = make_sets(folder / "repository", catalogue.items, users[:SET_USERS], args.k)
    line["within"] = measure_sets(head, catalogue.items, users[:SET_USERS], sets, filters)
    if not args.no_peers:
        line["peers"] = measure_peers(args, head, catalogue, true, sets, (table, filters))
    console = Console(width=140)
    console.print(table)
    console.print(filters)
    return line


def make_calls(head: Head, k: int) -> dict[str, Call]:
    """Our ways to answer, by name."""
    calls: dict[str, Call] = {
        OURS: lambda rows: head.topk(rows, k).ids,
        EXACT: lambda rows: head.topk(rows, k, exact=True).ids,
    }
    dense = head.dense
    return calls if dense is None else calls | {DENSE: lambda rows: dense.topk(rows, k, UNRESTRICTED).ids}


def measure_ours(head: Head, users: FloatArray, true: IdArray, table: Table) -> dict[str, Any]:
    """The rows of the table that are ours, and their part of the line."""
    calls = make_calls(head, true.shape[1])
    paces = time_users(calls, users)
    recalls = {name: measure_recall(call, users, true) for name, call in calls.items()}
    for name, pace in paces.items():
        figures = (f"{pace.mean:,.0f}", f"{pace.median:,.0f}", f"{pace.p99:,.0f}")
        table.add_row(name, "", f"{recalls[name].mean:.4f}", f"{recalls[name].worst:.2f}", *figures, "")
    return {
        "recall": round(recalls[OURS].mean, 5),
        "recall_worst": round(recalls[OURS].worst, 3),
        "us": round(paces[OURS].mean),
        "p99_us": round(paces[OURS].p99),
        "exact_us": round(paces[EXACT].mean),
        "exact_recall": round(recalls[EXACT].mean, 5),
        "dense_us": round(paces[DENSE].mean) if DENSE in paces else None,
    }


def measure_peers(
    args: argparse.Namespace,
    head: Head,
    catalogue: Catalogue,
    true: IdArray,
    sets: list[Members],
    tables: tuple[Table, Table],
) -> dict[str, Any]:
    """The same of peers, and of their filters."""
    users, line = catalogue.asked[: args.users], {}
    names = args.peers or list_peers(graphs=args.graphs)
    for peer in build_peers(Dense(catalogue.items), catalogue.contexts, users, true, names):
        if isinstance(peer, Peer):
            figures = measure_peer(peer, make_calls(head, args.k)[OURS], users, true, tables[0])
            within = measure_filter(head, peer, users[:SET_USERS], sets, tables[1])
            line[peer.name] = figures | ({"within": within} if within else {})
        else:
            print(peer)
    return line


def measure_peer(peer: Peer, ours: Call, users: FloatArray, true: IdArray, table: Table) -> dict[str, float]:
    """One peer beside our head."""

    def call(rows: FloatArray) -> IdArray:
        return peer.contender.topk(rows, true.shape[1])

    paces, recall = time_users({OURS: ours, peer.name: call}, users), measure_recall(call, users, true)
    pace = paces[peer.name]
    figures = (f"{pace.mean:,.0f}", f"{pace.median:,.0f}", f"{pace.p99:,.0f}", f"{peer.build_seconds:,.0f}")
    table.add_row(peer.name, peer.setting, f"{recall.mean:.4f}", f"{recall.worst:.2f}", *figures)
    return {
        "us": round(pace.mean),
        "ours_us": round(paces[OURS].mean),
        "recall": round(recall.mean, 5),
        "build_seconds": round(peer.build_seconds),
    }


def describe(args: argparse.Namespace, export: Export, start: Start) -> dict[str, Any]:
    """The part of the line about the export and the start."""
    return {
        "items": args.items,
        "dim": args.dim,
        "export_minutes": round(export.seconds / 60, 2),
        "export_peak_gib": round(export.peak_bytes / (1 << 30), 2),
        "bundle_gib": round(export.bundle_bytes / (1 << 30), 2),
        "load_seconds": round(start.load_seconds, 2),
        "ready_seconds": round(start.ready_seconds, 2),
    }


def main() -> int:
    args = parse_arguments()
    return run_command(MODULE, lambda: run_study(args))


if __name__ == "__main__":
    sys.exit(main())
