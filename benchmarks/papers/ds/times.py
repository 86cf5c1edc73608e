"""Wall times of Doubly Sparse Softmax through the service's runtime, beside the fastest dense spelling."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray
from shortlist.evaluation.timing import Call, find_fastest
from shortlist.head import Head as Served
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts as Sample

from benchmarks.common.dense import spellings
from benchmarks.papers.l2s.times import Wall, alone_call, asked, beside, head_call

from .runs import Head, Text

BATCHES = (1, 64)
ROWS = 6400


def wall_table(text: Text, heads: list[Head], cache: Path) -> str:
    """One line a head and batch size."""
    rows = text.test.contexts[np.random.default_rng(0).permutation(len(text.test.contexts))[:ROWS]]
    dense = {name: asked(call) for name, call in spellings(text.dense, cache / "dense", 1).items()}
    served = {one.label: served_head(text, one, cache, {}) for one in heads}
    most = [one for one in heads if one.experts == max(head.experts for head in heads)]
    served |= {f"{one.label} in int8": served_head(text, one, cache, {"int8": "true"}) for one in most}
    titles = "| batch | | us, mean | median | p99 | times as fast as dense, totals | medians |\n"
    lines = [titles, "|---|---|---|---|---|---|---|\n"]
    for batch in BATCHES:
        lines += lines_of(batch, dense, served, rows)
    return "".join(lines)


def lines_of(batch: int, dense: Mapping[str, Call], served: Mapping[str, Served], rows: FloatArray) -> list[str]:
    """Head.topk, and for single rows the plan alone, each in turn with the fastest dense."""
    timed: dict[str, Call] = {f"{kind}, Head.topk": head_call(head) for kind, head in served.items()}
    if batch == 1:
        timed |= {f"{kind}, alone, without checks": alone_call(head) for kind, head in served.items()}
    found = beside(dense[find_fastest(dense, rows, batch)], timed, rows, batch)
    return [f"| {batch} | {cells(wall, found[0].median)} |\n" for wall in found]


def cells(wall: Wall, dense_median: float) -> str:
    """As table cells."""
    times_of = f"{wall.mean:.1f} | {wall.median:.1f} | {wall.p99:.1f}"
    return f"{wall.name} | {times_of} | {wall.speedup:.2f} | {dense_median / wall.median:.2f}"


def served_head(text: Text, head: Head, cache: Path, options: dict[str, str]) -> Served:
    """The head as a bundle."""
    trained = hashlib.sha256(head.module.weight.detach().numpy().tobytes()).hexdigest()[:8]
    name = "-".join([head.name, *options, trained])
    out = cache / "ds-batch-bundles" / name / "1"
    if not out.is_dir():
        held = Sample(text.test.contexts[:4000], None if text.test.targets is None else text.test.targets[:4000])
        export(text.dense, held, out, Request("ds", options, threads=1, head=head.module))
    return Served(Bundle(out, verify=False), "cpu", 1)
