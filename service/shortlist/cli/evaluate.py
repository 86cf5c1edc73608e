"""Hold a bundle against its own dense head on contexts of yours, and against what it promises.

shortlist evaluate repo/lm/1 --contexts x.safetensors --out figures.json

Errors and divergences are in nats. Exits 0, or 1 with --strict where the bundle's promise does not hold here.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from shortlist.core.arrays import Array
from shortlist.errors import BadInput, ShortlistError
from shortlist.evaluation.compare import flatten
from shortlist.evaluation.evaluator import MAX_EVALUATED_ROWS, Depth, Evaluation, Targets, evaluate
from shortlist.head import Head, load

from .arguments import add_device, add_threads, parse_depths, parse_natural_int, parse_positive_int
from .context_files import TARGETS_FORMAT, read_contexts, read_documents, read_kinds, read_targets
from .figures import Line, format_line, format_share, format_summary
from .result_files import check_out


def configure(parser: argparse.ArgumentParser) -> None:
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
        type=parse_positive_int,
        default=MAX_EVALUATED_ROWS,
        metavar="N",
        help="most distinct rows measured (default: %(default)s)",
    )
    parser.add_argument(
        "--seed", type=parse_natural_int, default=0, help="of the rows' random order (default: %(default)s)"
    )
    parser.add_argument(
        "--at",
        type=parse_depths,
        default=(),
        metavar="K,K,...",
        help="measure requests for each of these k in detail: P@k, the share missed, and the risk that was stated",
    )
    parser.add_argument("--strict", action="store_true", help="exit 1 where the bundle's promise does not hold")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object; infinity is null")
    form.add_argument("--csv", action="store_true", help="print lines `figure,value`")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the JSON there too")
    add_device(parser)
    add_threads(parser)


def run(args: argparse.Namespace) -> int:
    """Measure a head, print its figures; returns 1 if it breaks its promise and --strict is set, else 0."""
    if args.out is not None:
        check_folder(args.out)  # before any work
        check_out(args.out, args.contexts, args.targets)
    contexts, targets = read_contexts(args.contexts), load_targets(args)
    documents = read_documents(args.contexts)
    head = load(args.bundle, device=args.device, threads=args.threads)
    progress = show_progress if sys.stderr.isatty() else None
    result = evaluate(
        head,
        contexts,
        targets,
        rows=args.rows,
        seed=args.seed,
        at=args.at,
        kinds=read_kinds(args.contexts, documents),
        documents=documents,
        progress=progress,
    )
    try:
        if args.out is not None:
            write_text(args.out, result.model_dump_json(indent=1) + "\n")
    finally:  # what took minutes to measure is not lost where it cannot be written
        print(format_evaluation(args, head, result))
    if result.warning is not None:
        print(f"warning: {result.warning}", file=sys.stderr)
    return 1 if args.strict and result.warning is not None else 0


def check_folder(out: Path) -> None:
    """Raise BadInput if there is no folder that `out` could be written to."""
    if not out.parent.is_dir():
        raise BadInput(f"{out} cannot be written: there is no folder {out.parent}")


def load_targets(args: argparse.Namespace) -> Array | None:
    """Read the targets [n] of --targets, or those beside the contexts, None where there are none."""
    if args.targets is None:
        return None if args.contexts.suffix == ".npy" else read_targets(args.contexts)
    targets = read_targets(args.targets)
    if targets is None:
        raise BadInput(f"{args.targets} has no tensor 'targets': give {TARGETS_FORMAT}")
    return targets


def show_progress(done: int, total: int) -> None:
    """Write progress over the last line of the terminal."""
    print(f"\r{done:,} of {total:,} rows", end="\n" if done == total else "", file=sys.stderr, flush=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file; raises ShortlistError when the disk refuses."""
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise ShortlistError(f"{path} cannot be written: {error.strerror}") from error


def format_evaluation(args: argparse.Namespace, head: Head, result: Evaluation) -> str:
    """Format the figures as JSON, CSV or a table, by the flags."""
    if args.json:
        return result.model_dump_json()
    if args.csv:
        return format_csv(flatten_figures(json.loads(result.model_dump_json())))
    return "\n".join([format_title(args.bundle, head), *map(format_line, list_figures(result))])


def format_csv(pairs: Iterable[tuple[str, str]]) -> str:
    """Format lines `figure,value`; a name that holds a comma, as kinds of text may, is quoted."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("figure", "value"), *pairs])
    return text.getvalue().rstrip("\n")


def flatten_figures(content: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (`a.b.c`, value) for every number in nested objects; text and nulls are left out."""
    return ((name, repr(value)) for name, value in flatten(content) if isinstance(value, int | float))


def format_title(bundle: Path, head: Head) -> str:
    """Format the first line: which head was measured."""
    manifest = head.manifest
    return f"{bundle}: {manifest.method}, V = {manifest.classes:,}, d = {manifest.dim}, on {head.device}"


def list_figures(result: Evaluation) -> Iterator[Line]:
    """Yield the table's figures in order, and at its end what could not be reported."""
    yield "rows", f"{result.rows:,} distinct, random order of seed {result.seed}"
    yield from list_precision(result)
    yield from list_truth(result)
    yield from list_targets(result.head_targets, result.dense_targets)
    yield from list_costs(result)
    for sentence in result.missing:
        yield "not reported", sentence


def list_precision(result: Evaluation) -> Iterator[Line]:
    """Yield P@k with its intervals and promises, and what was measured in detail of requests for some k."""
    promised, asked = result.promised or {}, result.asked or {}
    shares = (result.precision or {}) | {k: depth.precision for k, depth in asked.items()}
    for k, share in sorted(shares.items()):
        promise = f", {promised[k]:.4f} at the export" if k in promised else ""
        yield f"P@{k}", f"{format_share(share)}{promise}{format_risk(asked.get(k))}"
        yield from list_bands(asked.get(k))
    for name, depth in (result.kinds or {}).items():
        yield f"P@1, {name}", f"{format_share(depth.precision)}{format_risk(depth)}"


def format_risk(depth: Depth | None) -> str:
    """Format what was missed beside what was expected; nothing where no risk is estimated."""
    return "" if depth is None or depth.risk is None else f", missed {depth.missed:.5f}, by risk {depth.risk:.5f}"


def list_bands(depth: Depth | None) -> Iterator[Line]:
    """Yield what rows of about equal risk missed, where there is more than one band of them."""
    for band in depth.bands if depth is not None and len(depth.bands) > 1 else ():
        yield "", f"{band.rows:,} rows of risk {band.risk:.5f}: missed {band.missed:.5f}"


def list_truth(result: Evaluation) -> Iterator[Line]:
    """Yield the other figures that compare with the exact results."""
    for size, mean in (result.coverage or {}).items():
        yield f"top-{size} coverage", f"{mean:.2f}/{size}"
    if result.order_kept is not None:
        yield "order of the first 10 kept", f"{result.order_kept:.4f} of rows"
    rows = {
        "KL(dense || head), nats": result.kl,
        "Z~/Z": result.z_ratio,
        "log-prob error, nats": result.logprob_error,
        "where the best was found": result.logprob_error_hits,
    }
    for name, summary in rows.items():
        if summary is not None:
            yield name, format_summary(summary)


def list_targets(head: Targets | None, dense: Targets | None) -> Iterator[Line]:
    """Yield the figures on the gold classes, the dense head's beside the head's."""
    head_texts, dense_texts = format_targets(head), format_targets(dense)
    for name in head_texts | dense_texts:
        beside = [f"dense {dense_texts[name]}"] if name in dense_texts else []
        texts = [head_texts.get(name, "not known"), *beside]
        yield name, ", ".join(texts)


def format_targets(targets: Targets | None) -> dict[str, str]:
    """Format the figures on the gold classes, by name; {} where there are no targets."""
    if targets is None:
        return {}
    texts = {f"target in top {k}": format_share(share) for k, share in targets.accuracy.items()}
    if targets.nll is not None:
        texts |= {"NLL of targets, nats": f"{targets.nll:.4f}", "perplexity": f"{targets.perplexity:.2f}"}
    if targets.scored_nll is not None:
        texts |= {
            "NLL as scored, nats": f"{targets.scored_nll:.4f}",
            "perplexity as scored": f"{targets.scored_perplexity:.2f}",
        }
    return texts


def list_costs(result: Evaluation) -> Iterator[Line]:
    """Yield the lines on what a query costs: classes scored, and rows that dense answered."""
    for name, cost in {"multiply-adds": result.cost_macs, "bytes of weights": result.cost_bytes}.items():
        if cost is not None:
            yield name, f"{cost:.4f} of dense"
    yield "candidates per query", f"mean {result.candidates['mean']:,.1f}, p99 {result.candidates['p99']:,.0f}"
    yield "answered by dense", f"{result.answered_dense:.2%} of rows asked one by one"
