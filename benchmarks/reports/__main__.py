"""The page of all tables and pictures, from runs that are there; nothing is measured.

  python -m benchmarks.reports                       build/bench/page/benchmarks.md, from build/bench/runs
  python -m benchmarks.reports --runs runs.jsonl     the same, with the runs of a file besides
  python -m benchmarks.reports --docs docs           also the front tables of docs/benchmarks.md and its pictures

Beside the page stands runs.jsonl with the runs that it is made of: a page from --runs of that file is the same.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shortlist.errors import NotFound

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.runs import Store

from .docs_fronts import publish_fronts
from .page import PAGE_FILE, collect_runs, group_runs, name_sets, write_page

MODULE = "benchmarks.reports"


def make_page(args: argparse.Namespace) -> None:
    """Write the page, and with --docs what the documentation shows of it."""
    if args.runs is not None and not args.runs.is_file():
        raise NotFound(f"there is no file {args.runs}: give --runs a runs.jsonl")
    runs = collect_runs(Store(args.cache / "runs"), args.runs)
    folder = args.cache / "page"
    write_page(runs, folder)
    print(f"{len(runs):,} runs: {folder / PAGE_FILE}")
    if args.docs is not None:
        publish_fronts(name_sets(group_runs([run for run in runs if not run.error])), args.docs)


def main() -> int:
    parser = make_parser(MODULE, __doc__, cache="runs are read and the page is written here")
    parser.add_argument("--runs", type=Path, metavar="FILE", help="more runs, a JSON value a line")
    parser.add_argument("--docs", type=Path, metavar="DIR", help="refresh the tables and pictures of this folder, too")
    return run_command(MODULE, lambda: make_page(parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
