"""The top k classes of the contexts in a file.

The file is read, answered and written part by part, so millions of rows need no more memory than thousands.

shortlist query repo/lm/1 --contexts x.npy -k 5
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, TopK
from shortlist.errors import BadInput
from shortlist.head import Head, load

from .answer_files import ArrayFile, check_suffix
from .arguments import positive
from .context_files import ContextRows, open_contexts

SHOWN = 20  # rows printed; --json and --out take them all
ROWS = 4_096  # rows answered at a time
SECONDS, SECONDS_IN_A_LOG = 1, 30  # between two lines of progress
COLUMNS = ("row", "rank", "id", "log-prob", "share", "label")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("bundle", type=Path, help="folder <name>/<version>")
    parser.add_argument("--contexts", type=Path, required=True, metavar="FILE", help="[n, d], npy or safetensors")
    parser.add_argument("-k", type=int, default=5, help="classes wanted (default: %(default)s)")
    parser.add_argument("--exact", action="store_true", help="the dense head's answer, proved or computed")
    parser.add_argument("--json", action="store_true", help="print one JSON object; -inf is null")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write ids, logprobs, scored: npz, safetensors, or npy of records"
    )
    parser.add_argument("--device", help="cpu or cuda:N (default: SHORTLIST_DEVICE, else cpu)")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of each session (default: all granted)")


def run(args: argparse.Namespace) -> int:
    """Answer every row, print or write them, return 0."""
    if args.out is not None:
        check_suffix(args.out)  # told before the rows are answered, which may take hours
    head, contexts = load(args.bundle, device=args.device, threads=args.threads), open_contexts(args.contexts)
    every = args.out is not None or args.json
    parts = answers(head, contexts, args, contexts.count if every else min(contexts.count, SHOWN))
    if args.out is not None:
        parts = written(parts, args.out, contexts.count, args.k)
    if args.json:
        print(as_json(head, whole(list(parts))))
    elif args.out is None:
        show(head, whole(list(parts)), contexts.count)
    else:
        deque(parts, maxlen=0)  # nothing is kept
    return 0


def answers(head: Head, contexts: ContextRows, args: argparse.Namespace, rows: int) -> Iterator[TopK]:
    """The top k of the first `rows` contexts, `ROWS` at a time; raises BadInput naming the file and the row.

    The plan is chosen once, as for one request of all the file's rows: its last rows are answered as the others.
    """
    if contexts.dim != head.manifest.dim:
        name, dim = head.manifest.name, head.manifest.dim
        raise BadInput(f"contexts of {contexts.path} have d = {contexts.dim} but {name} takes d = {dim}")
    head.check_k(args.k)
    plan, normalizer = head.choose_plan(contexts.count, args.k, args.exact)
    progress = Progress(rows)
    for start in range(0, max(rows, 1), ROWS):
        part = contexts.rows(start, min(start + ROWS, rows))
        try:
            yield head.run(plan, head.check_contexts(part), args.k, ClassFilter()).topk(normalizer)
        except BadInput as error:
            raise BadInput(f"{contexts.path}, counted from row {start}: {error}") from None
        progress.show(start + len(part))


def written(parts: Iterator[TopK], out: Path, rows: int, k: int) -> Iterator[TopK]:
    """The same parts, each written to `out` as it passes."""
    columns = {"ids": ("<i8", (k,)), "logprobs": ("<f4", (k,)), "scored": ("<i4", ())}
    with ArrayFile(out, rows, {name: (np.dtype(code), shape) for name, (code, shape) in columns.items()}) as file:
        for top in parts:
            file.add({"ids": top.ids, "logprobs": top.logprobs, "scored": top.scored})
            yield top
        file.finish()
    print(f"{out}: {rows:,} rows, {top.normalizer} normaliser", file=sys.stderr)


def whole(parts: list[TopK]) -> TopK:
    """All rows as one answer."""
    return TopK(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.logprobs for part in parts]),
        np.concatenate([part.scored for part in parts]),
        parts[0].normalizer,
    )


class Progress:
    """Says on stderr, now and then, how far a long run is."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.begun = self.shown = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def show(self, done: int) -> None:
        """Print where it is time to."""
        now = time.monotonic()
        if done == self.total or now - self.shown < (SECONDS if self.terminal else SECONDS_IN_A_LOG):
            return
        self.shown = now
        speed = done / (now - self.begun)
        line = f"{done:,} of {self.total:,} rows, {speed:,.0f} a second, {(self.total - done) / speed:,.0f} s left"
        print(f"shortlist query: {line}", file=sys.stderr, end="\r" if self.terminal else "\n", flush=True)


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


def show(head: Head, top: TopK, rows: int) -> None:
    """A table of the first of `rows` rows, one line a class, best first."""
    lines = [COLUMNS[: 5 if head.labels is None else 6], *cells(head, top)]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for line in lines:
        print("  ".join([cell.rjust(width) for cell, width in zip(line[:5], widths, strict=True)] + list(line[5:])))
    if rows > SHOWN:
        print(f"{rows - SHOWN:,} more rows: --json or --out FILE takes them all", file=sys.stderr)


def cells(head: Head, top: TopK) -> Iterator[tuple[str, ...]]:
    """The table's lines; a short row has fewer."""
    for row, (ids, logprobs) in enumerate(zip(top.ids, top.logprobs, strict=True)):
        for rank, (id_, logprob) in enumerate(zip(ids, logprobs, strict=True), 1):
            if id_ != NO_CLASS:
                label = () if head.labels is None else (repr(label_of(head, int(id_))),)
                yield str(row), str(rank), str(id_), f"{logprob:.4f}", f"{np.exp(logprob):.2%}", *label


def label_of(head: Head, id_: int) -> str | None:
    """A class's label; None for no class."""
    assert head.labels is not None
    return None if id_ == NO_CLASS else head.labels[id_]
