"""Penn Treebank's layer, 10,000 x 200: the fastest head that keeps P@1 .998, beside dense."""

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
STAGED = {"budget": "400", "second_probe": "0.12", "second_stage": "int8", "width": "100", "full_view": "24"}
PTB_REQUESTS = {
    "l2s": Request("l2s", {"budget": "278", "second_probe": "0.03"}, fallback=False, certificate=False, threads=1),
    "l2s, second stage": Request("l2s", STAGED, fallback=False, certificate=False, threads=1),
}


def open_head(data: DataSet, request: Request, repository: Path) -> Head:
    """The head of one request, exported once into `repository`."""
    key = hashlib.sha256(f"{FORMAT_VERSION}{request}{data.fingerprint}".encode()).hexdigest()[:8]
    out = repository / f"{request.method}-{key}" / "1"
    if not out.is_dir():
        with progress_bar(f"exporting {request.method}") as report:
            export(data.dense, data.fit, out, request, report)
    return Head(Bundle(out, verify=False), "cpu", 1)


def keep_precision(head: Head, data: DataSet, say: Callable[[str], None]) -> Head | None:
    """The head with the least margin for a second cluster that keeps the precision; None where none does."""
    for margin in PROBE_MARGINS:
        other = head.with_settings(probe_margin=margin)
        share = measure_best_share(other, data)
        if share >= PTB_PRECISION:
            say(f"ptb: {head.folder.parent.name} with probe_margin={margin} has P@1 {share:.4f}")
            return other
    say(f"ptb: {head.folder.parent.name} has P@1 {share:.4f} at most")
    return None


def measure_ptb(cache: Path, folder: Path | None, say: Callable[[str], None]) -> float | None:
    """Dense's time over that of the fastest head; None, and a sentence, where there are no data or no such head."""
    if folder is None:
        say("ptb: not measured, give DATA, a folder with ptb/")
        return None
    data = DATASETS["ptb"](Place(cache, folder))
    heads = {name: open_head(data, request, cache / "kernels" / "ptb") for name, request in PTB_REQUESTS.items()}
    kept = {name: keep_precision(head, data, say) for name, head in heads.items()}
    calls: dict[str, Call] = {
        name: lambda some, head=head: head.topk(some, TIMED_K).ids  # type: ignore[misc]
        for name, head in kept.items()
        if head is not None
    }
    if not calls:
        say(f"ptb: not measured, no head has P@1 {PTB_PRECISION}")
        return None
    rows = data.test.contexts[:TIMED_ROWS]
    speedups = compute_dense_speedups(data.dense, cache / "kernels" / "ptb-dense", calls, rows, 1)
    say("ptb: times dense, " + ", ".join(f"{name} {speedup:.2f}" for name, speedup in speedups.items()))
    return round(max(speedups.values()), 2)
