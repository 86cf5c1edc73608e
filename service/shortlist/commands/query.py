"""The top k classes of the contexts in a file.

shortlist query repo/lm/1 --contexts x.npy -k 5
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..head import Head, load
from ..result import NO_CLASS, TopK
from ..tensor_files import read_contexts, write_arrays

SHOWN = 20  # rows printed; --json and --out take them all
COLUMNS = ("row", "rank", "id", "log-prob", "share", "label")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundle", type=Path, help="folder <name>/<version>")
    parser.add_argument("--contexts", type=Path, required=True, metavar="FILE", help="[n, d], npy or safetensors")
    parser.add_argument("-k", type=int, default=5, help="classes wanted (default: %(default)s)")
    parser.add_argument("--exact", action="store_true", help="answer with the dense head")
    parser.add_argument("--json", action="store_true", help="print one JSON object; -inf is null")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write ids, logprobs, scored: npz or safetensors")
    parser.add_argument("--device", help="cpu or cuda:N (default: SHORTLIST_DEVICE, else cpu)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each session (default: all granted)")


def run(args: argparse.Namespace) -> int:
    """Answer every row, print or write them, return 0."""
    head = load(args.bundle, device=args.device, threads=args.threads)
    top = head.topk(read_contexts(args.contexts), args.k, exact=args.exact)
    if args.out is not None:
        write_arrays(args.out, {"ids": top.ids, "logprobs": top.logprobs, "scored": top.scored})
        print(f"{args.out}: {len(top.ids):,} rows, {top.normalizer} normaliser", file=sys.stderr)
    if args.json:
        print(as_json(head, top))
    elif args.out is None:
        show(head, top)
    return 0


def as_json(head: Head, top: TopK) -> str:
    """The answer as /v1/topk gives it."""
    content = {
        "model": head.manifest.name,
        "version": head.manifest.version,
        "ids": top.ids.tolist(),
        "logprobs": [[value if value > -np.inf else None for value in row] for row in top.logprobs.tolist()],
        "scored": top.scored.tolist(),
        "normalizer": top.normalizer,
    }
    if head.labels is not None:
        content["labels"] = [[label_of(head, id_) for id_ in row] for row in top.ids.tolist()]
    return json.dumps(content, ensure_ascii=False)


def show(head: Head, top: TopK) -> None:
    """A table, one line a class, best first."""
    lines = [COLUMNS[: 5 if head.labels is None else 6], *cells(head, top)]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for line in lines:
        print("  ".join([cell.rjust(width) for cell, width in zip(line[:5], widths, strict=True)] + list(line[5:])))
    if len(top.ids) > SHOWN:
        print(f"{len(top.ids) - SHOWN:,} more rows: --json or --out FILE takes them all", file=sys.stderr)


def cells(head: Head, top: TopK) -> Iterator[tuple[str, ...]]:
    """The table's lines; a short row has fewer."""
    for row, (ids, logprobs) in enumerate(zip(top.ids[:SHOWN], top.logprobs[:SHOWN], strict=True)):
        for rank, (id_, logprob) in enumerate(zip(ids, logprobs, strict=True), 1):
            if id_ != NO_CLASS:
                label = () if head.labels is None else (repr(label_of(head, int(id_))),)
                yield str(row), str(rank), str(id_), f"{logprob:.4f}", f"{np.exp(logprob):.2%}", *label


def label_of(head: Head, id_: int) -> str | None:
    """A class's label; None for no class."""
    assert head.labels is not None
    return None if id_ == NO_CLASS else head.labels[id_]
