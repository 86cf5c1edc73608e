"""The top k classes of the contexts in a file.

With --out the file is read, searched and written part by part, so millions of rows need no more memory than thousands;
--json holds all answers, about 1 KB a row, until it prints them. The file counts as one request: from as many rows on
as the bundle's dense_crossover says, the dense layer answers all of them.

shortlist query repo/lm/1 --contexts x.npy -k 5
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, FloatArray, TopK
from shortlist.errors import BadInput
from shortlist.head import Head, load
from shortlist.plans.common.normalizer import make_topk

from .arguments import add_device, add_threads
from .context_files import ContextFile, open_contexts
from .result_files import ArrayFile, check_out, check_suffix

PRINTED_ROWS = 20  # --json and --out take all rows
PART_ROWS = 4_096  # searched at a time
PROGRESS_SECONDS, LOG_PROGRESS_SECONDS = 1, 30  # between two lines of progress, on a terminal and in a log
TABLE_COLUMNS = ("row", "rank", "id", "log-prob", "share", "label")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bundle", type=Path, help="folder <name>/<version>")
    parser.add_argument("--contexts", type=Path, required=True, metavar="FILE", help="[n, d], npy or safetensors")
    parser.add_argument("-k", type=int, default=5, help="classes wanted (default: %(default)s)")
    parser.add_argument("--exact", action="store_true", help="the dense head's answer, proved or computed")
    parser.add_argument("--json", action="store_true", help="print one JSON object; -inf is null")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write ids, logprobs, scored: npz, safetensors, or npy of records"
    )
    add_device(parser)
    add_threads(parser)


def run(args: argparse.Namespace) -> int:
    """Search all rows, print or write the results; returns 0."""
    if args.out is not None:
        check_suffix(args.out)  # before the rows are searched, which may take hours
        check_out(args.out, args.contexts)
    head, contexts = load(args.bundle, device=args.device, threads=args.threads), open_contexts(args.contexts)
    rows = contexts.count if args.out is not None or args.json else min(contexts.count, PRINTED_ROWS)
    parts = search_parts(head, contexts, args, rows)
    if args.out is not None:
        parts = write_parts(parts, args.out, contexts.count, args.k)
    if args.json:
        print(format_json(head, TopK.concat(list(parts))))
    elif args.out is None:
        print_table(head, TopK.concat(list(parts)), contexts.count)
    else:
        deque(parts, maxlen=0)  # each part is written as it passes, and dropped
    return 0


def search_parts(head: Head, contexts: ContextFile, args: argparse.Namespace, rows: int) -> Iterator[TopK]:
    """Yield the top k of the first `rows` contexts, `PART_ROWS` at a time; raises BadInput naming file and row.

    The plan is chosen once, as for one request of all the file's rows, so that the last part gets the same one.
    """
    if contexts.dim != head.manifest.dim:
        name, dim = head.manifest.name, head.manifest.dim
        raise BadInput(f"contexts of {contexts.path} have d = {contexts.dim} but {name} takes d = {dim}")
    head.check_k(args.k)
    plan, normalizer = head.choose_plan(contexts.count, args.k, args.exact)
    for _ in read_parts(head, contexts, rows):
        pass  # what is not finite is refused before hours of search
    progress = ProgressLine(rows)
    for start, part in read_parts(head, contexts, rows):
        with name_rows(contexts.path, start):
            top = make_topk(head.run(plan, part, args.k, ClassFilter()), normalizer)
        yield top
        progress.show(start + len(part))


def read_parts(head: Head, contexts: ContextFile, rows: int) -> Iterator[tuple[int, FloatArray]]:
    """Yield the first `rows` contexts, `PART_ROWS` at a time, each part with the number of its first row.

    The first part is there even if it has no rows. Raises BadInput naming file and row.
    """
    for start in range(0, max(rows, 1), PART_ROWS):
        with name_rows(contexts.path, start):
            part = head.check_contexts(contexts.read_rows(start, min(start + PART_ROWS, rows)))
        yield start, part


@contextmanager
def name_rows(path: Path, start: int) -> Iterator[None]:
    """Let a BadInput about rows of a part say of which file they are, and from which row on they are counted."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{path}, counted from row {start}: {error}") from None


def write_parts(parts: Iterator[TopK], out: Path, rows: int, k: int) -> Iterator[TopK]:
    """Yield the same parts, each written to `out` as it passes; raises BadInput, ShortlistError."""
    columns = {"ids": ("<i8", (k,)), "logprobs": ("<f4", (k,)), "scored": ("<i4", ())}
    with ArrayFile(out, rows, {name: (np.dtype(code), shape) for name, (code, shape) in columns.items()}) as file:
        for top in parts:
            file.add({"ids": top.ids, "logprobs": top.logprobs, "scored": top.scored})
            yield top
        file.finish()
    print(f"{out}: {rows:,} rows, {top.normalizer} normaliser", file=sys.stderr)


class ProgressLine:
    """Prints to stderr, now and then, how far a long run is."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.start_time = self.line_time = time.monotonic()
        self.terminal = sys.stderr.isatty()

    def show(self, done: int) -> None:
        """Print a line if the last one is old enough."""
        now = time.monotonic()
        if done == self.total or now - self.line_time < (PROGRESS_SECONDS if self.terminal else LOG_PROGRESS_SECONDS):
            return
        self.line_time = now
        speed = done / (now - self.start_time)
        line = f"{done:,} of {self.total:,} rows, {speed:,.0f} a second, {(self.total - done) / speed:,.0f} s left"
        print(f"shortlist query: {line}", file=sys.stderr, end="\r" if self.terminal else "\n", flush=True)


def format_json(head: Head, top: TopK) -> str:
    """Format the result as POST /v1/topk does."""
    content = {
        "model": head.manifest.name,
        "version": head.manifest.version,
        "ids": top.ids.tolist(),
        "logprobs": [[value if value > -np.inf else None for value in row] for row in top.logprobs.tolist()],
        "scored": top.scored.tolist(),
        "normalizer": top.normalizer,
    }
    if head.labels is not None:
        content["labels"] = [[get_label(head, id_) for id_ in row] for row in top.ids.tolist()]
    return json.dumps(content, ensure_ascii=False)


def print_table(head: Head, top: TopK, rows: int) -> None:
    """Print a table of the results, one line a class, best first; rows: how many the file has."""
    lines = [TABLE_COLUMNS[: 5 if head.labels is None else 6], *list_cells(head, top)]
    widths = [max(len(line[column]) for line in lines) for column in range(5)]
    for line in lines:
        print("  ".join([cell.rjust(width) for cell, width in zip(line[:5], widths, strict=True)] + list(line[5:])))
    if rows > PRINTED_ROWS:
        print(f"{rows - PRINTED_ROWS:,} more rows: --json or --out FILE takes them all", file=sys.stderr)


def list_cells(head: Head, top: TopK) -> Iterator[tuple[str, ...]]:
    """Yield the table's lines as cells; a row with fewer than k classes has fewer lines."""
    for row, (ids, logprobs) in enumerate(zip(top.ids, top.logprobs, strict=True)):
        for rank, (id_, logprob) in enumerate(zip(ids, logprobs, strict=True), 1):
            if id_ != NO_CLASS:
                label = () if head.labels is None else (repr(get_label(head, int(id_))),)
                yield str(row), str(rank), str(id_), f"{logprob:.4f}", f"{np.exp(logprob):.2%}", *label


def get_label(head: Head, id_: int) -> str | None:
    """Return a class's label, None for `NO_CLASS`."""
    assert head.labels is not None
    return None if id_ == NO_CLASS else head.labels[id_]
