"""The heads of the study: candidates of every method, exported once, and the choice among them on training text.

What is tried is told apart by what counts in the end: of training sentences that no head was fitted on, how many get
another best hypothesis, and how many times fewer multiply-adds a row takes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray
from shortlist.errors import ShortlistError
from shortlist.head import Head
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense

from benchmarks.sweep.heads import hash_request

DENSE = "full"
COUNTED_ROWS = 20_000  # of which the classes scored are counted
COUNTED_K = 10  # what beam 5 asks for

Options = Mapping[str, str]
CANDIDATES: dict[str, list[Options]] = {
    "l2s": [{"budget": "500", "depth": "10"}],
    "ds": [{"experts": "8"}],
    "svd": [
        {"basis": "context", "width": "12", "full_view": "200"},
        {"basis": "context", "width": "14", "full_view": "128"},
    ],
    "grouped": [
        {"width": "48", "previewed": "768", "candidates": "64", "full_view": "16", "promise": "0"},
        {"width": "72", "previewed": "640", "candidates": "96", "full_view": "24", "promise": "0"},
    ],
}


@dataclass(frozen=True)
class Trial:
    """A head on training sentences. changed: share of best hypotheses. macs: multiply-adds over dense's."""

    method: str
    place: int
    changed: float
    macs: float


def open_head(folder: Path, dense: Dense, contexts: Contexts, method: str, options: Options, threads: int) -> Head:
    """The head of this method and these options, exported below `folder` where it is missing."""
    request = Request(method, dict(options), fallback=False, certificate=False, threads=threads)
    out = folder / f"{method}-{hash_request(request)}-{FORMAT_VERSION}" / "1"
    try:
        return Head(Bundle(out, verify=False), "cpu", threads)
    except ShortlistError:
        shutil.rmtree(out, ignore_errors=True)
    with progress_bar(f"exporting {method}") as report:
        export(dense, contexts, out, request, report)
    return Head(Bundle(out, verify=False), "cpu", threads)


def measure_macs(head: Head, contexts: FloatArray) -> float:
    """Multiply-adds of a row over dense's: the export's figure, but for the classes that these rows score more."""
    quality = head.manifest.quality
    if quality is None or head.plan is head.dense:
        return 1.0
    top = [head.topk_by_plan(contexts[start : start + 512], COUNTED_K) for start in range(0, len(contexts), 512)]
    scored = float(np.concatenate([each.scored for each in top]).mean())
    return quality.cost_macs + (scored - expect_scored(head)) / head.manifest.classes


def expect_scored(head: Head) -> float:
    """The classes scored for a row that the export's figure counts."""
    fit, settings = head.manifest.fit, head.manifest.settings.model_dump()
    if head.manifest.method == "l2s":
        return float(quality_macs(head) * head.manifest.classes - fit["clusters"])
    if head.manifest.method == "ds":
        return float(quality_macs(head) * head.manifest.classes - fit["experts"])
    return float(settings["candidates" if head.manifest.method == "grouped" else "full_view"])


def quality_macs(head: Head) -> float:
    """The export's multiply-adds over dense's."""
    assert head.manifest.quality is not None
    return head.manifest.quality.cost_macs


def choose_trial(trials: list[Trial], limit: float) -> Trial:
    """The cheapest of those that change at most `limit` of the hypotheses, or the one that changes least."""
    right = [trial for trial in trials if trial.changed <= limit]
    return min(right, key=lambda trial: trial.macs) if right else min(trials, key=lambda trial: trial.changed)
