"""How much two heads agree: the classes they return, their log-probabilities, and what they were made with.

shortlist diff repo/lm/1 repo/lm/2 -k 5

Classes are matched by their names where both heads have some. Both answer by their plans alone, never by dense.
Log-probabilities are in nats. Exits 0 however much they differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.core.arrays import Array
from shortlist.evaluation.compare import COMPARED_K, Difference, check_pair, compare_heads
from shortlist.evaluation.measurement import choose_distinct_rows
from shortlist.head import load

from .arguments import add_device, add_threads, parse_natural_int, parse_positive_int
from .context_files import read_contexts
from .figures import NAME_WIDTH, Line, format_line, format_share, format_summary

VALUE_WIDTH = 24  # characters


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", type=Path, help="folder <name>/<version>")
    parser.add_argument("second", type=Path, help="folder <name>/<version>, over the same d; the same V, or names")
    parser.add_argument(
        "--contexts",
        type=Path,
        metavar="FILE",
        help="[n, d], npy or safetensors (default: those that the first bundle's export held out)",
    )
    parser.add_argument(
        "-k",
        type=parse_positive_int,
        default=COMPARED_K,
        metavar="K",
        help="classes of a row whose overlap and log-probabilities are compared (default: %(default)s)",
    )
    parser.add_argument(
        "--rows",
        type=parse_positive_int,
        metavar="N",
        help="most distinct rows compared, drawn at random (default: all rows)",
    )
    parser.add_argument(
        "--seed", type=parse_natural_int, default=0, help="of the draw of --rows (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object; infinity is null")
    add_device(parser)
    add_threads(parser)


def run(args: argparse.Namespace) -> int:
    """Compare two bundles and print how far they agree; returns 0."""
    first, second = (load(path, device=args.device, threads=args.threads) for path in (args.first, args.second))
    check_pair(first, second)  # before a large file is read
    result = compare_heads(first, second, load_contexts(args), args.k)
    print(result.model_dump_json() if args.json else "\n".join(format_table(args, result)))
    return 0


def load_contexts(args: argparse.Namespace) -> Array:
    """Contexts [n, d] of --contexts, or those that the first bundle's export held out; of them --rows, if given."""
    if args.contexts is None:
        contexts: Array = Bundle(args.first, verify=False).tensors(CALIBRATION_FILE)["contexts"]
    else:
        contexts = read_contexts(args.contexts)
    return contexts if args.rows is None else contexts[choose_distinct_rows(contexts, args.rows, args.seed)]


def format_table(args: argparse.Namespace, result: Difference) -> Iterator[str]:
    """Yield lines: how far the heads agree, then their settings side by side, marked where they differ."""
    source = args.contexts or f"held out by the export of {args.first}"
    yield f"{args.first} against {args.second}, {result.rows:,} contexts ({source})"
    yield from map(format_line, list_agreement(result))
    yield ""
    width = max([NAME_WIDTH, *(len(name) + 2 for name in result.settings)])
    yield format_row("", "first", "second", width)
    for name, pair in result.settings.items():
        first, second = map(format_setting, pair)
        yield format_row(f"{'*' if name in result.differing else ' '} {name}", first, second, width)
    yield f"* differs: {len(result.differing)} of {len(result.settings)}"


def list_agreement(result: Difference) -> Iterator[Line]:
    """Yield the figures that compare the two heads."""
    for depth, share in result.agreement.items():
        yield f"agreement at {depth}", format_share(share)
    yield f"among both heads' {result.k}", f"mean {result.overlap:.3f} of {result.k}"
    yield f"the same {result.k} classes", f"{result.same_set:.2%} of rows, in the same order {result.same_order:.2%}"
    if result.logprob_difference is not None:
        yield "|log-prob difference|, nats", format_summary(result.logprob_difference)
        yield "second - first, nats", f"mean {result.logprob_shift:.4g}"
    for which, candidates in zip(("first", "second"), result.candidates, strict=True):
        yield f"candidates, {which}", f"mean {candidates['mean']:,.1f}, p99 {candidates['p99']:,.0f}"
    if result.relabelled:
        yield "labels", f"{result.relabelled:,} classes have another label: ids do not mean the same in both"
    if result.only_first or result.only_second or result.moved:
        sides = f"{result.only_first:,} in the first alone, {result.only_second:,} in the second alone"
        yield "names", f"{sides}, {result.moved:,} with another id: classes are matched by name"


def format_row(name: str, first: str, second: str, width: int) -> str:
    """Format one line of two columns, beside names of at most so many characters."""
    return f"{name:<{width}} {first:<{VALUE_WIDTH}} {second}".rstrip()


def format_setting(value: Any) -> str:
    """Format a setting: long values are cut (`--json` has them whole), missing ones are a dash."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if len(text) < VALUE_WIDTH else f"{text[: VALUE_WIDTH - 4]}..."
