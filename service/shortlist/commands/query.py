"""The top k classes of the contexts in a file.

shortlist query repo/lm/1 --contexts x.npy -k 5
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from ..errors import BadInput, NotFound, ShortlistError
from ..head import Head, load
from ..result import NO_CLASS, FloatArray, TopK

SHOWN = 20  # rows printed; a file takes them all


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundle", type=Path, help="folder <name>/<version>")
    parser.add_argument("--contexts", type=Path, required=True, metavar="FILE", help="[n, d], npy or safetensors")
    parser.add_argument("-k", type=int, default=5, help="classes wanted (default: %(default)s)")
    parser.add_argument("--exact", action="store_true", help="answer with the dense head")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write ids, logprobs, scored to this safetensors file")
    parser.add_argument("--device", help="cpu or cuda:N (default: SHORTLIST_DEVICE, else cpu)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of each session (default: all granted)")


def run(args: argparse.Namespace) -> int:
    """Answer every row, print or write them, return 0."""
    head = load(args.bundle, device=args.device, threads=args.threads)
    top = head.topk(read_contexts(args.contexts), args.k, exact=args.exact)
    if args.out is None:
        show(head, top)
        return 0
    try:
        save_file({"ids": top.ids, "logprobs": top.logprobs, "scored": top.scored}, args.out)
    except (OSError, SafetensorError) as error:
        raise ShortlistError(f"{args.out} cannot be written: {error}") from error
    print(f"{args.out}: {len(top.ids):,} rows, {top.normalizer} normaliser")
    return 0


def read_contexts(path: Path) -> FloatArray:
    """The contexts of a file; raises NotFound, BadInput."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False), np.float32)
        with safe_open(path, framework="numpy") as file:
            return np.asarray(file.get_tensor("contexts"), np.float32)
    except (SafetensorError, ValueError, TypeError, EOFError) as error:
        raise BadInput(
            f"{path} holds no contexts: give an npy [n, d], or a safetensors file with 'contexts'"
        ) from error


def show(head: Head, top: TopK) -> None:
    """One line a row: classes and log-probabilities, best first."""
    for row, (ids, logprobs) in enumerate(zip(top.ids[:SHOWN].tolist(), top.logprobs[:SHOWN].tolist(), strict=True)):
        cells = (f"{name_of(head, i)} {value:.4f}" for i, value in zip(ids, logprobs, strict=True) if i != NO_CLASS)
        print(f"{row}\t" + "\t".join(cells))
    if len(top.ids) > SHOWN:
        print(f"{len(top.ids) - SHOWN} more rows; --out FILE takes them all", file=sys.stderr)


def name_of(head: Head, class_id: int) -> str:
    """A class's label in quotes, or its id."""
    return str(class_id) if head.labels is None else repr(head.labels[class_id])
