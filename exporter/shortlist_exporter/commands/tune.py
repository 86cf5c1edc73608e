r"""Find the fastest head that keeps a promise on your contexts and this machine, and export it.

  shortlist tune --weights head.safetensors --contexts contexts.safetensors \
      --target-p1 0.99 --target-p5 0.98 --out repo/lm/1

The contexts are split by document: the last tenth tests, the tenth before it tunes, the rest fits; where one kind of
text comes after another, so is each kind. Heads are fitted on few contexts first; the better half goes on to more. The
fastest head whose precision on the tune split keeps every target, at the lower end of its 95 % interval, is then held
to the same on the test split; where it fails there, the next more precise one is tried. Every number is of the
service's own runtime beside its dense head.

Searched are the methods that approximate the given layer. Those that train a layer of their own on targets (their
reference is `self`) are not: dense is no truth for them.

Ctrl-C ends the search and keeps the best found so far (twice: everything); the same command again goes on from the
cache. All that was tried is in the bundle's report/tune.json. Exits 1 where no head keeps the promise.
"""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentTypeError
from dataclasses import replace
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from shortlist.bundle.reader import Bundle
from shortlist.cli.arguments import add_device, parse_positive_int, parse_precision, parse_share
from shortlist.runtime.devices import resolve_device
from shortlist.runtime.threads import count_available_threads

from shortlist_exporter.inputs.sources import load_contexts
from shortlist_exporter.records.tuning import Promise, Trial, TuneRecord
from shortlist_exporter.tuning.cache import default_folder
from shortlist_exporter.tuning.promises import format_mib, keeps_promise, make_promise, may_keep_promise
from shortlist_exporter.tuning.space import list_default_methods
from shortlist_exporter.tuning.tuner import DEFAULT_MINUTES, NoHead, TuneRequest, tune

from .export import configure_bundle, configure_layer
from .making import add_labels, load_layer, make_bundle_request, print_notes
from .progress import progress_bar
from .threads import limit_torch

MIB_BYTES = 1 << 20
TABLE_CHARACTERS = 150  # characters of the table where no terminal says


def configure(parser: argparse.ArgumentParser) -> None:
    configure_layer(parser)
    configure_promise(parser)
    configure_search(parser)
    configure_bundle(parser)


def configure_promise(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--target-p1", type=parse_share, metavar="SHARE", help="P@1 that the head is to keep (0 to 1)")
    add("--target-p5", type=parse_share, metavar="SHARE", help="the same for P@5")
    add(
        "--target-pk",
        type=parse_precision,
        action="append",
        default=[],
        metavar="K=SHARE",
        help="the same for P@K, repeatable",
    )
    add("--max-logprob-error", type=parse_positive, metavar="NATS", help="most mean error of the log-probabilities")
    add("--max-memory", type=parse_positive, metavar="MIB", help="most memory for graphs, weights and index, in MiB")
    add(
        "--batch",
        type=parse_positive_int,
        default=1,
        metavar="ROWS",
        help="contexts in a request (default: %(default)s)",
    )
    add_device(parser)


def configure_search(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--methods",
        type=parse_names,
        default=(),
        metavar="M,M",
        help=f"methods to try (default: those that approximate the layer, {','.join(list_default_methods())})",
    )
    add(
        "--test-contexts",
        type=Path,
        metavar="FILE",
        help="the test split from a file of its own; then 9/10 of the rest fit (default: the last tenth)",
    )
    add(
        "--time-budget",
        type=float,
        default=DEFAULT_MINUTES,
        metavar="MINUTES",
        help="for the search (default: %(default)g)",
    )
    add(
        "--cache",
        type=Path,
        metavar="FOLDER",
        help="what is reused (default: shortlist/tune in the user's cache folder)",
    )
    add("--allow-dense", action="store_true", help="export dense itself where nothing faster keeps the promise")


def parse_positive(text: str) -> float:
    """Parse a finite number over 0; raises ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ArgumentTypeError(f"'{text}' is not a number over 0")
    return number


def parse_names(text: str) -> tuple[str, ...]:
    """Parse `svd,l2s` as a tuple."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def run(args: argparse.Namespace) -> int:
    """Search and print what was tried; returns 0, or raises NoHead where nothing was exported."""
    limit_torch(None)  # of `threads` are the heads that are timed; fits may take all
    request = make_tune_request(args)
    with progress_bar("reading") as report:
        dense, contexts = load_layer(args)
        test = None if args.test_contexts is None else load_contexts(args.test_contexts)
        request = replace(request, bundle=add_labels(args, request.bundle, dense))
        try:
            record, failure = tune(dense, contexts, args.out, request, report, test), None
        except NoHead as error:
            record, failure = error.record, error
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else TABLE_CHARACTERS)
    console.print(make_table(record))
    if failure is not None:
        raise failure
    console.print(f"{args.out}: {record.sentence}", highlight=False)
    print_notes(Bundle(args.out).manifest)
    return 0


def make_tune_request(args: argparse.Namespace) -> TuneRequest:
    """The request of the arguments; raises BadInput, DeviceError."""
    pairs = [(k, share) for k, share in ((1, args.target_p1), (5, args.target_p5)) if share is not None]
    promise = make_promise(
        [*pairs, *args.target_pk],
        logprob_error=args.max_logprob_error,
        memory=None if args.max_memory is None else int(args.max_memory * MIB_BYTES),
        batch=args.batch,
        threads=args.threads or count_available_threads(),
        device=resolve_device(args.device),
    )
    cache = args.cache or default_folder()
    return TuneRequest(promise, args.time_budget, args.methods, args.allow_dense, cache, make_bundle_request(args))


def make_table(record: TuneRecord) -> Table:
    """A table of every head that was measured, fastest first."""
    promise = record.promise
    view = Table(
        box=SIMPLE, title=make_title(record), caption="\n".join(f"{one.what}: {one.why}" for one in record.left) or None
    )
    view.add_column("head", overflow="fold", min_width=20)
    for name in ("fit on", "rows", *(f"P@{k}" for k in promise.precision), "us", "x dense", "scored", "MiB", "verdict"):
        view.add_column(name, justify="right", no_wrap=True)
    for place, trial in enumerate(record.trials):
        view.add_row(*format_cells(trial, promise, is_choice=place == record.chosen))
    return view


def make_title(record: TuneRecord) -> str:
    """The table's title: splits and conditions."""
    splits = ", ".join(f"{part.rows:,} to {name}" for name, part in (("fit", record.fit), ("tune", record.tune)))
    promise = record.promise
    return (
        f"{len(record.trials)} heads on contexts: {splits}, {record.test.rows:,} to test; "
        f"batch {promise.batch}, {promise.threads} thread{'s' * (promise.threads > 1)}, {promise.device}"
    )


def format_cells(trial: Trial, promise: Promise, *, is_choice: bool) -> list[str]:
    """The cells of a trial: figures of the test split where it was measured there, else of the tune split."""
    figures = trial.test or trial.tune
    shares = [f"{figures.precision[k].mean:.4f}" for k in promise.precision]
    times = [f"{figures.us:,.0f}", f"{figures.speedup:.2f}", f"{figures.scored:,.0f}", format_mib(trial.bytes)]
    return [
        trial.label,
        f"{trial.fit_rows:,}",
        f"{figures.rows:,}",
        *shares,
        *times,
        describe_verdict(trial, promise, is_choice=is_choice),
    ]


def describe_verdict(trial: Trial, promise: Promise, *, is_choice: bool) -> str:
    """The last cell of a trial: whether it was chosen, and whether it keeps the promise."""
    if is_choice:
        return "chosen"
    if trial.test is not None:
        return "failed on test"
    if keeps_promise(promise, trial.tune, trial.bytes, calibrated=False):
        return "keeps"
    return "may keep" if may_keep_promise(promise, trial.tune, trial.bytes) else "no"
