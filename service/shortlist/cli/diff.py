"""How much two heads agree: the classes they return, their log-probabilities, and what they were made with.

shortlist diff repo/lm/1 repo/lm/2 -k 5

Both answer by their plans alone, never by dense. Log-probabilities are in nats. Exits 0 however much they differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shortlist.bundle.reader import CALIBRATION, Bundle
from shortlist.core.arrays import Array
from shortlist.evaluation.compare import COMPARED_K, Difference, check_pair, compare_heads
from shortlist.head import load

from .arguments import positive
from .context_files import read_contexts
from .evaluate import WIDTH, Line, interval, listed

COLUMN = 24


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("first", type=Path, help="folder <name>/<version>")
    parser.add_argument("second", type=Path, help="folder <name>/<version>, over the same classes and contexts")
    parser.add_argument(
        "--contexts",
        type=Path,
        metavar="FILE",
        help="[n, d], npy or safetensors (default: those that the first bundle's export held out)",
    )
    parser.add_argument(
        "-k",
        type=positive,
        default=COMPARED_K,
        metavar="K",
        help="classes of a row whose overlap and log-probabilities are compared (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object; infinity is null")
    parser.add_argument("--device", help="cpu or cuda:N (default: SHORTLIST_DEVICE, else cpu)")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of each session (default: all granted)")


def run(args: argparse.Namespace) -> int:
    """Compare, print, return 0."""
    first, second = (load(path, device=args.device, threads=args.threads) for path in (args.first, args.second))
    check_pair(first, second)  # told before a large file is read
    found = compare_heads(first, second, contexts_of(args), args.k)
    print(found.model_dump_json() if args.json else "\n".join(table(args, found)))
    return 0


def contexts_of(args: argparse.Namespace) -> Array:
    """The contexts asked for, or the first bundle's own."""
    if args.contexts is not None:
        return read_contexts(args.contexts)
    held: Array = Bundle(args.first, verify=False).tensors(CALIBRATION)["contexts"]
    return held


def table(args: argparse.Namespace, found: Difference) -> Iterator[str]:
    """Agreement first, then the settings side by side, those that differ under a mark."""
    source = args.contexts or f"held out by the export of {args.first}"
    yield f"{args.first} against {args.second}, {found.rows:,} contexts ({source})"
    yield from (f"{name:<{WIDTH}} {text}" for name, text in lines(found))
    yield ""
    yield side_by_side("", "first", "second")
    for name, pair in found.settings.items():
        yield side_by_side(f"{'*' if name in found.differing else ' '} {name}", *map(shown, pair))
    yield f"* differs: {len(found.differing)} of {len(found.settings)}"


def lines(found: Difference) -> Iterator[Line]:
    """What the two heads have in common."""
    for depth, share in found.agreement.items():
        yield f"agreement at {depth}", interval(share)
    yield f"among both heads' {found.k}", f"mean {found.overlap:.3f} of {found.k}"
    yield f"the same {found.k} classes", f"{found.same_set:.2%} of rows, in the same order {found.same_order:.2%}"
    if found.logprob_difference is not None:
        yield "|log-prob difference|, nats", listed(found.logprob_difference)
        yield "second - first, nats", f"mean {found.logprob_shift:.4g}"
    for which, candidates in zip(("first", "second"), found.candidates, strict=True):
        yield f"candidates, {which}", f"mean {candidates['mean']:,.1f}, p99 {candidates['p99']:,.0f}"
    if found.relabelled:
        yield "labels", f"{found.relabelled:,} classes have another label: ids do not mean the same in both"


def side_by_side(name: str, first: object, second: object) -> str:
    """One line of two columns."""
    return f"{name:<{WIDTH}} {first!s:<{COLUMN}} {second}".rstrip()


def shown(value: Any) -> str:
    """A setting as it is printed: hashes and long lists cut (`--json` has all), absent ones a dash."""
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if len(text) < COLUMN else f"{text[: COLUMN - 4]}..."
