"""What one contender finds on one kind of text, with intervals by document, and how long it takes beside dense."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from shortlist.bundle.manifest import Strict
from shortlist.core.results import FloatArray
from shortlist.evaluation.statistics import DEVIATIONS_95, Share, mark_hits
from shortlist.evaluation.timing import Call, time_calls

from .contenders import Asked, ask_rows
from .inputs import TRUE_CLASSES, Domain

TIMED_COUNTS = (1, 5)  # k
PROBABILITY_STEPS = (0.1, 0.5)  # between which lost classes are counted
ROWS_PER_LOST = 1000
MOST_SECONDS = 60.0  # of the timing of one kind

Doubles = npt.NDArray[np.float64]


class Finding(Strict):
    """Precision on one kind. lost: rows whose best class was not the first at k = 1, per 1,000 rows of the kind.

    By the best class's probability: under .1, from .1 to .5, from .5 on.
    """

    rows: int
    documents: int
    p1: Share
    p5: Share
    lost: tuple[float, float, float]


class Pace(Strict):
    """Microseconds of a call at batch 1, and dense's mean time in the same run over the mean."""

    mean: float
    p99: float
    times_dense: float
    p99_times_dense: float


def measure_finding(asked: Asked, domain: Domain, folder: Path) -> Finding:
    """What a contender finds on all rows of a kind; kept in `folder`."""
    key = hashlib.sha256(f"{asked.name}{asked.key}{domain.fingerprint}".encode()).hexdigest()[:16]
    path = folder / f"{domain.kind.name.replace(' ', '-')}-{key}.json"
    if path.is_file():
        return Finding.model_validate_json(path.read_text("utf-8"))
    finding = find_classes(asked, domain)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(finding.model_dump_json(), "utf-8")
    return finding


def find_classes(asked: Asked, domain: Domain) -> Finding:
    """The same, measured now."""
    truth, documents = domain.truth, domain.kind.documents
    first = ask_rows(asked.topk, truth.contexts, 1)
    five = ask_rows(asked.topk, truth.contexts, TRUE_CLASSES)
    hits = mark_hits(first, truth.best, 1)[:, 0].astype(np.float64)
    return Finding(
        rows=len(hits),
        documents=len(np.unique(documents)),
        p1=share_by_document(hits, documents),
        p5=share_by_document(mark_hits(five, truth.best, TRUE_CLASSES).mean(axis=1), documents),
        lost=count_lost(hits < 1, np.exp(truth.logprobs[:, 0].astype(np.float64))),
    )


def share_by_document(hits: Doubles, documents: npt.NDArray[np.int32]) -> Share:
    """The mean of `hits` [n] and its 95 % interval, whole documents [n] being drawn, not rows."""
    _, owner = np.unique(documents, return_inverse=True)
    rows, found = np.bincount(owner), np.bincount(owner, hits)
    mean, count = float(hits.mean()), len(rows)
    spread = float(np.sqrt(((found - mean * rows) ** 2).sum() * count / max(1, count - 1))) / len(hits)
    reach = DEVIATIONS_95 * spread
    return Share(mean=mean, low=max(0.0, mean - reach), high=min(1.0, mean + reach))


def count_lost(lost: npt.NDArray[np.bool_], probability: Doubles) -> tuple[float, float, float]:
    """Lost rows per 1,000 of all, by the probability [n] of their best class."""
    low, middle, high = np.bincount(np.digitize(probability[lost], PROBABILITY_STEPS), minlength=3)
    return tuple(float(ROWS_PER_LOST * count / len(lost)) for count in (low, middle, high))  # type: ignore[return-value]


def make_call(topk: Callable[[FloatArray, int], npt.NDArray[np.int64]], k: int) -> Call:
    """Top k as a timed call."""
    return lambda rows: topk(rows, k)


def time_kind(
    calls: Mapping[str, Call], contexts: FloatArray, rows: int, batch: int, dense: str = "dense"
) -> dict[str, Pace]:
    """Every contender beside dense on random rows of a kind, in one interleaved run."""
    some = contexts[np.random.default_rng(0).permutation(len(contexts))[:rows]]
    figures = {
        name: times.summarize() for name, times in time_calls(calls, some, batch, max_seconds=MOST_SECONDS).items()
    }
    beside = figures[dense]
    return {
        name: Pace(
            mean=one["mean"],
            p99=one["p99"],
            times_dense=beside["mean"] / one["mean"],
            p99_times_dense=beside["p99"] / one["p99"],
        )
        for name, one in figures.items()
        if name != dense
    }


def find_worst(findings: Mapping[str, Finding], value: Callable[[Finding], float]) -> str:
    """The kind of which the value is least."""
    return min(findings, key=lambda kind: value(findings[kind]))
