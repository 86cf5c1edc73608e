"""Hold a bundle against its own dense head on contexts of yours, and against what it promises.

shortlist evaluate repo/lm/1 --contexts x.safetensors --out figures.json

Errors and divergences are in nats. Exits 0, or 1 with --strict where the bundle's promise does not hold here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shortlist.core.arrays import Array
from shortlist.errors import BadInput, ShortlistError
from shortlist.evaluation.evaluator import MAX_EVALUATED_ROWS, Evaluation, Targets, evaluate
from shortlist.evaluation.statistics import Share, Summary
from shortlist.head import Head, load

from .arguments import natural, positive
from .context_files import TARGETS_KIND, read_contexts, read_targets

WIDTH = 28
Line = tuple[str, str]


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundle", type=Path, help="folder <name>/<version>")
    parser.add_argument("--contexts", type=Path, required=True, metavar="FILE", help="[n, d], npy or safetensors")
    parser.add_argument(
        "--targets",
        type=Path,
        metavar="FILE",
        help="[n] gold classes, npy or safetensors (default: the tensor `targets` beside the contexts)",
    )
    parser.add_argument(
        "--rows",
        type=positive,
        default=MAX_EVALUATED_ROWS,
        metavar="N",
        help="most distinct rows measured (default: %(default)s)",
    )
    parser.add_argument("--seed", type=natural, default=0, help="of the rows' random order (default: %(default)s)")
    parser.add_argument("--strict", action="store_true", help="exit 1 where the bundle's promise does not hold")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object; infinity is null")
    form.add_argument("--csv", action="store_true", help="print lines `figure,value`")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there too")
    parser.add_argument("--device", help="cpu or cuda:N (default: SHORTLIST_DEVICE, else cpu)")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of each session (default: all granted)")


def run(args: argparse.Namespace) -> int:
    """Measure, print, warn; returns 0, or 1 where --strict is not satisfied."""
    check(args)
    contexts, targets = read_contexts(args.contexts), targets_of(args)
    head = load(args.bundle, device=args.device, threads=args.threads)
    progress = show_progress if sys.stderr.isatty() else None
    found = evaluate(head, contexts, targets, rows=args.rows, seed=args.seed, progress=progress)
    if args.out is not None:
        write(args.out, found.model_dump_json(indent=1) + "\n")
    print(printed(args, head, found))
    if found.warning is not None:
        print(f"warning: {found.warning}", file=sys.stderr)
    return 1 if args.strict and found.warning is not None else 0


def check(args: argparse.Namespace) -> None:
    """Refuse before any work what could not succeed; raises BadInput."""
    if args.seed < 0:
        raise BadInput(f"seed is {args.seed}: give a whole number from 0")
    if args.out is not None and not args.out.parent.is_dir():
        raise BadInput(f"{args.out} cannot be written: there is no folder {args.out.parent}")


def targets_of(args: argparse.Namespace) -> Array | None:
    """The targets asked for, or those beside the contexts where there are any."""
    if args.targets is None:
        return None if args.contexts.suffix == ".npy" else read_targets(args.contexts)
    targets = read_targets(args.targets)
    if targets is None:
        raise BadInput(f"{args.targets} has no tensor 'targets': give {TARGETS_KIND}")
    return targets


def show_progress(done: int, total: int) -> None:
    """One line on the terminal, written over."""
    print(f"\r{done:,} of {total:,} rows", end="\n" if done == total else "", file=sys.stderr, flush=True)


def write(path: Path, text: str) -> None:
    """Write a file; raises ShortlistError when the disk refuses."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ShortlistError(f"{path} cannot be written: {error.strerror}") from error


def printed(args: argparse.Namespace, head: Head, found: Evaluation) -> str:
    """The figures in the form asked for."""
    if args.json:
        return found.model_dump_json()
    if args.csv:
        pairs = flat(json.loads(found.model_dump_json()))
        return "\n".join(["figure,value", *(f"{name},{value}" for name, value in pairs)])
    return "\n".join([title(args.bundle, head), *(f"{name:<{WIDTH}} {text}" for name, text in lines(found))])


def flat(content: dict[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """(`a.b.c`, value) for every number of nested objects; text and what is missing is left out."""
    for name, value in content.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{name}.")
        elif isinstance(value, int | float):
            yield f"{above}{name}", repr(value)


def title(bundle: Path, head: Head) -> str:
    """What was measured."""
    manifest = head.manifest
    return f"{bundle}: {manifest.method}, V = {manifest.classes:,}, d = {manifest.dim}, on {head.device}"


def lines(found: Evaluation) -> Iterator[Line]:
    """The table, figure by figure; those that could not be had are named at the end."""
    yield "rows", f"{found.rows:,} distinct, random order of seed {found.seed}"
    yield from precision_lines(found)
    yield from truth_lines(found)
    yield from target_lines(found.head_targets, found.dense_targets)
    yield from cost_lines(found)
    for sentence in found.missing:
        yield "not reported", sentence


def precision_lines(found: Evaluation) -> Iterator[Line]:
    """P@k with intervals and promises."""
    for k, share in (found.precision or {}).items():
        promise = "" if found.promised is None else f", promised {found.promised[k]:.4f}"
        yield f"P@{k}", f"{interval(share)}{promise}"


def truth_lines(found: Evaluation) -> Iterator[Line]:
    """Everything else that needs a truth."""
    for size, mean in (found.coverage or {}).items():
        yield f"top-{size} coverage", f"{mean:.2f}/{size}"
    if found.order_kept is not None:
        yield "order of the first 10 kept", f"{found.order_kept:.4f} of rows"
    named = {
        "KL(dense || head), nats": found.kl,
        "Z~/Z": found.z_ratio,
        "log-prob error, nats": found.logprob_error,
    }
    for name, summary in named.items():
        if summary is not None:
            yield name, listed(summary)


def target_lines(head: Targets | None, dense: Targets | None) -> Iterator[Line]:
    """Figures on the gold classes, the dense head's beside the head's own."""
    own, true = target_texts(head), target_texts(dense)
    for name in own | true:
        texts = [own.get(name, "not known"), *([f"dense {true[name]}"] if name in true else [])]
        yield name, ", ".join(texts)


def target_texts(targets: Targets | None) -> dict[str, str]:
    """Figures on the gold classes, by name."""
    if targets is None:
        return {}
    texts = {f"target in top {k}": interval(share) for k, share in targets.accuracy.items()}
    if targets.nll is not None:
        texts |= {"NLL of targets, nats": f"{targets.nll:.4f}", "perplexity": f"{targets.perplexity:.2f}"}
    return texts


def cost_lines(found: Evaluation) -> Iterator[Line]:
    """What an answer costs."""
    for name, cost in {"multiply-adds": found.cost_macs, "bytes of weights": found.cost_bytes}.items():
        if cost is not None:
            yield name, f"{cost:.4f} of dense"
    yield "candidates per query", f"mean {found.candidates['mean']:,.1f}, p99 {found.candidates['p99']:,.0f}"
    yield "answered by dense", f"{found.answered_dense:.2%} of rows asked one by one"


def interval(share: Share) -> str:
    """A share with its 95 % interval."""
    return f"{share.mean:.4f} ({share.low:.4f} to {share.high:.4f})"


def listed(summary: Summary) -> str:
    """`mean ..., p99 ...`."""
    return ", ".join(f"{name} {value:.4g}" for name, value in summary.items())
