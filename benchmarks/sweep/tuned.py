"""The promised head at the settings that keep P@1 and P@5 in the least time, as every peer is set.

An export promises a precision for each row, with room for kinds of text that nothing was fitted on, so that its mean on
text like the fitted is far over the promise. Peers are set to a mean; so is the head here, by rows that the export held
out: the worse end of a 95 % interval has to keep it, as for `shortlist tune`. Test rows have no part in it.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
from shortlist.bundle.settings import PREVIEWED_DIVISOR
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.statistics import estimate_precision
from shortlist.evaluation.timing import Call, time_calls
from shortlist.head import Head
from shortlist.kernels.native.build import hash_sources
from shortlist_exporter.commands.progress import progress_bar
from shortlist_exporter.export.request import Request
from shortlist_exporter.inputs.splits import split_held_out

from benchmarks.common.truth import Truth, load_truth
from benchmarks.datasets.registry import DataSet

from .peers import LEAST_P1, LEAST_P5

PROMISES = (0.9, 0.95, 0.97, 0.99)
OPENED_SHARES = (0.125, 0.1875, 0.25, 0.375, 0.5)  # of the classes that the export opens
CANDIDATE_SHARES = (0.375, 0.5, 0.75)
TUNED_K = 5
TUNED_BATCH = 8  # rows of a call while settings are compared
FINALISTS = 10  # settings, the fastest at first sight, that are timed in turns
FINAL_PASSES = 3  # over all rows
FINAL_BLOCK = 5  # calls of one finalist before the next has its turn

Setting = dict[str, float]


def tune_head(head: Head, data: DataSet, folder: Path) -> Head:
    """The head of plan `grouped` at its fastest precise settings, which are kept in `folder` for these loops.

    As it is without a promise: then graphs answer, which look once.
    """
    if head.manifest.promise is None:
        return head
    path = folder / f"{head.manifest.digest[:16]}-{hash_sources()}.json"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(find_setting(head, load_tune_rows(data, folder))), "utf-8")
    return head.with_settings(**json.loads(path.read_text("utf-8")))


def load_tune_rows(data: DataSet, folder: Path) -> Truth:
    """The rows that exports hold out, and their best classes."""
    _, rows = split_held_out(data.fit, Request(method="grouped").seed)
    return load_truth(folder / f"tune-{data.fingerprint}.safetensors", data.dense, data.fit.contexts[rows], None)


def find_setting(head: Head, truth: Truth) -> Setting:
    """The fastest setting that keeps the precision on `truth`; none where no setting does, so that the head stays."""
    settings = list_settings(head)
    precise: list[tuple[float, Setting]] = []
    with progress_bar("settings") as report:
        for done, setting in enumerate(settings):
            report("settings", done, len(settings))
            us, keeps = measure_setting(head.with_settings(**setting), truth)
            precise += [(us, setting)] if keeps else []
    fastest = sorted(precise, key=lambda pair: pair[0])[:FINALISTS]
    return choose_fastest(head, [setting for _, setting in fastest], truth) if fastest else {}


def choose_fastest(head: Head, settings: list[Setting], truth: Truth) -> Setting:
    """The setting with the least time on average, all timed in turns: by seconds of its own each had other noise."""
    calls = {str(number): make_call(head.with_settings(**setting)) for number, setting in enumerate(settings)}
    times = time_calls(calls, np.tile(truth.contexts, (FINAL_PASSES, 1)), TUNED_BATCH, block=FINAL_BLOCK)
    return settings[int(min(times, key=lambda name: times[name].total))]


def list_settings(head: Head) -> list[Setting]:
    """Every setting that is tried, beside the head as it is: fewer classes at each stage, and less sure rows."""
    exported = head.manifest.settings.model_dump()
    settings = []
    for promise, opened, candidates in itertools.product(PROMISES, OPENED_SHARES, CANDIDATE_SHARES):
        least = max(exported["full_view"], round(candidates * exported["candidates"]))
        most = max(least, round(opened * exported["opened"]))
        previewed = max(least, most // PREVIEWED_DIVISOR)
        settings.append({"promise": promise, "opened": most, "previewed": previewed, "candidates": least})
    return settings


def measure_setting(head: Head, truth: Truth) -> tuple[float, bool]:
    """Microseconds a row, and whether P@1 and P@5 are kept at the worse end of their intervals."""
    times = time_calls({"head": make_call(head)}, truth.contexts, TUNED_BATCH)["head"]
    true = truth.best.first_rows(len(times.ids))
    shares = [(estimate_precision(times.ids, true, k), least) for k, least in ((1, LEAST_P1), (5, LEAST_P5))]
    return times.summarize()["median"] / TUNED_BATCH, all(share.low >= least for share, least in shares)


def make_call(head: Head) -> Call:
    """A timed call of the head."""

    def answer(rows: FloatArray) -> IdArray:
        return head.topk(rows, TUNED_K).ids

    return answer
