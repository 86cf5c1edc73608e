"""Penn Treebank's layer, 10,000 x 200: a head that keeps P@1 .998 on test, beside dense."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.reader import Bundle
from shortlist.evaluation.timing import Call
from shortlist.head import Head
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export

from benchmarks.datasets.registry import DATASETS, DataSet, Place

from .ratios import TIMED_K, compute_dense_speedups, measure_best_share

PTB_PRECISION = 0.998  # P@1 on test
TIMED_ROWS = 4096
PROBE_MARGINS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3)  # rows of a smaller margin open a second cluster
PTB_OPTIONS = {"budget": "300", "second_probe": "0.12", "second_stage": "int8", "width": "144", "full_view": "8"}
PTB_REQUEST = Request("l2s", PTB_OPTIONS, fallback=False, certificate=False, threads=1)


def open_head(data: DataSet, repository: Path) -> Head:
    """The head, exported once into `repository`."""
    key = hashlib.sha256(f"{FORMAT_VERSION}{PTB_REQUEST}{data.fingerprint}".encode()).hexdigest()[:8]
    out = repository / f"l2s-{key}" / "1"
    if not out.is_dir():
        with progress_bar("exporting l2s") as report:
            export(data.dense, data.fit, out, PTB_REQUEST, report)
    return Head(Bundle(out, verify=False), "cpu", 1)


def keep_precision(head: Head, data: DataSet, say: Callable[[str], None]) -> Head | None:
    """The head with the least margin for a second cluster that keeps the precision; None where none does."""
    for margin in PROBE_MARGINS:
        other = head.with_settings(probe_margin=margin)
        share = measure_best_share(other, data)
        if share >= PTB_PRECISION:
            say(f"ptb: l2s with probe_margin={margin} has P@1 {share:.4f}")
            return other
    say(f"ptb: not measured, no margin keeps P@1 {PTB_PRECISION}, but {share:.4f} at most")
    return None


def measure_ptb(cache: Path, folder: Path | None, say: Callable[[str], None]) -> float | None:
    """Dense's time over the head's; None, and a sentence, where there are no data or it is not precise enough."""
    if folder is None:
        say("ptb: not measured, give DATA, a folder with ptb/")
        return None
    data = DATASETS["ptb"](Place(cache, folder))
    head = keep_precision(open_head(data, cache / "kernels" / "ptb"), data, say)
    if head is None:
        return None
    calls: dict[str, Call] = {"head": lambda some: head.topk(some, TIMED_K).ids}
    rows = data.test.contexts[:TIMED_ROWS]
    return round(compute_dense_speedups(data.dense, cache / "kernels" / "ptb-dense", calls, rows, 1)["head"], 2)
