"""The heads of the study: candidates of every method, exported once, and the choice among them on training text.

What is tried is told apart by what counts in the end: of training sentences that no head was fitted on, how many get
another best hypothesis, and how many times fewer multiply-adds a row takes.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.reader import Bundle
from shortlist.errors import ShortlistError
from shortlist.head import Head
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.export.request import Request
from shortlist_exporter.export.run import export
from shortlist_exporter.inputs.sources import Contexts, Dense

from benchmarks.sweep.heads import hash_request

DENSE = "full"
Options = Mapping[str, str]


# Candidates suffice for k = 10, which a beam of 5 asks for: a head with fewer searches all classes' previews then.
GROUPED = {
    "width": "48", "int8_width": "16", "groups": "274", "opened": "1400", "candidates": "120", "full_view": "64",
    "tail_terms": "128", "promise": "0.977",
}  # fmt: skip
TWO_STAGES = {
    "probes": "2", "second_stage": "int8", "width": "48", "full_view": "64", "depth": "10", "fallback": "0.03",
    "budget": "500", "tail_terms": "128",
}  # fmt: skip
CANDIDATES: dict[str, list[Options]] = {
    "l2s": [TWO_STAGES],
    "ds": [{"experts": "8"}],
    "svd": [{"basis": "context", "width": "12", "full_view": "200"}],
    "grouped": [GROUPED],
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


def choose_trial(trials: list[Trial], limit: float) -> Trial:
    """The one that changes least of those that take at most `limit` of dense's multiply-adds, or the cheapest."""
    right = [trial for trial in trials if trial.macs <= limit]
    return min(right, key=lambda trial: trial.changed) if right else min(trials, key=lambda trial: trial.macs)
