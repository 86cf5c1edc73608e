"""Wall times of Doubly Sparse Softmax through the service's runtime, beside the fastest dense spelling."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray
from shortlist.evaluation.timing import Call, find_fastest
from shortlist.head import Head as Served
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts as Sample

from benchmarks.common.dense import open_spellings
from benchmarks.papers.common.wall_times import (
    WallTime,
    draw_rows,
    make_head_call,
    make_plan_call,
    make_topk_call,
    time_beside_dense,
)

from .runs import Head, Text

WALL_BATCHES = (1, 64)
WALL_ROWS = 6400


def make_wall_table(text: Text, heads: list[Head], cache: Path) -> str:
    """One line a head and batch size."""
    rows = draw_rows(text.test.contexts, WALL_ROWS)
    dense = {name: make_topk_call(call) for name, call in open_spellings(text.dense, cache / "dense", 1).items()}
    heads_by_label = {one.label: export_head(text, one, cache, {}) for one in heads}
    most = [one for one in heads if one.experts == max(head.experts for head in heads)]
    heads_by_label |= {f"{one.label} in int8": export_head(text, one, cache, {"int8": "true"}) for one in most}
    titles = "| batch | | us, mean | median | p99 | times as fast as dense, totals | medians |\n"
    lines = [titles, "|---|---|---|---|---|---|---|\n"]
    for batch in WALL_BATCHES:
        lines += time_batch(batch, dense, heads_by_label, rows)
    return "".join(lines)


def time_batch(batch: int, dense: Mapping[str, Call], heads: Mapping[str, Served], rows: FloatArray) -> list[str]:
    """Head.topk, and for single rows the plan alone, each in turn with the fastest dense."""
    calls: dict[str, Call] = {f"{kind}, Head.topk": make_head_call(head) for kind, head in heads.items()}
    if batch == 1:
        calls |= {f"{kind}, alone, without checks": make_plan_call(head) for kind, head in heads.items()}
    walls = time_beside_dense(dense[find_fastest(dense, rows, batch)], calls, rows, batch)
    return [f"| {batch} | {format_cells(wall, walls[0].median)} |\n" for wall in walls]


def format_cells(wall: WallTime, dense_median: float) -> str:
    """The figures as table cells."""
    times_of = f"{wall.mean:.1f} | {wall.median:.1f} | {wall.p99:.1f}"
    return f"{wall.name} | {times_of} | {wall.speedup:.2f} | {dense_median / wall.median:.2f}"


def export_head(text: Text, head: Head, cache: Path, options: dict[str, str]) -> Served:
    """Export the head as a bundle into the cache, and open it with the service's runtime."""
    digest = hashlib.sha256(head.module.weight.detach().numpy().tobytes()).hexdigest()[:8]
    name = "-".join([head.name, *options, digest])
    out = cache / f"ds-batch-bundles-{FORMAT_VERSION}" / name / "1"
    if not out.is_dir():
        sample = Sample(text.test.contexts[:4000], None if text.test.targets is None else text.test.targets[:4000])
        export(text.dense, sample, out, Request("ds", options, threads=1, head=head.module))
    return Served(Bundle(out, verify=False), "cpu", 1)
