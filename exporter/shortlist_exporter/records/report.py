"""Every figure of a report, as records that JSON keeps (`report/figures.json`)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, ValidationError
from shortlist.bundle.files import REPORT_FOLDER
from shortlist.bundle.manifest import Strict
from shortlist.bundle.reader import Bundle
from shortlist.evaluation.evaluator import Depth
from shortlist.evaluation.statistics import Share, Summary

FIGURES_FILE = "figures.json"
HELD_OUT = "held-out contexts"
CALIBRATION_SAMPLE = "calibration contexts"

Status = Literal["kept", "broken", "unknown"]


class Document(Strict):
    """One document of a sample. number: as the contexts file numbers it. rows: of it that were measured."""

    number: int
    rows: int
    p_at_1: float


class Domain(Strict):
    """One sample held against the promise. precision: P@k by k; empty where there is no truth.

    error_mean, error_p99: |error| of log-probabilities, nats. error_hits_mean, error_hits_p99: the same of the rows
    whose best class was found. asked: requests for one class, with the risk that came with them; None where there is no
    truth. kinds: the same by kind of text. broken: the k whose promise does not hold here.
    """

    name: str
    rows: int
    precision: dict[int, Share]
    error_mean: float | None
    error_p99: float | None
    error_hits_mean: float | None = None
    error_hits_p99: float | None = None
    documents: list[Document]
    asked: Depth | None = None
    kinds: dict[str, Depth] = Field(default_factory=dict)
    broken: list[int]


class Point(Strict):
    """One plan or setting that was measured.

    us: median of a call with one row. times_dense: dense's time over its own, same rows.
    macs: multiply-adds relative to dense. scored: classes scored for a row, mean.
    """

    label: str
    kind: Literal["this head", "its options", "dense", "tried"]
    precision: dict[int, float]
    us: float | None = None
    times_dense: float | None = None
    macs: float | None = None
    scored: float | None = None


class Candidates(Strict):
    """Classes scored for a row: `summary` (mean, p50, p99, max), and counts [n] of rows between edges [n + 1]."""

    summary: Summary
    edges: list[float]
    counts: list[int]


class Band(Strict):
    """Errors where the exact log-probability is about `at`: percentiles 5, 50 and 95 over `rows` answers, nats."""

    at: float
    rows: int
    p5: float
    p50: float
    p95: float


class Calibration(Strict):
    """Estimated minus exact log-probability of the classes returned, nats.

    quantiles: of all errors, by percent. points: (exact, estimated) of some rows' best class.
    """

    normalizer: str
    quantiles: dict[str, float]
    bands: list[Band]
    points: list[tuple[float, float]]


class Copies(Strict):
    """Classes seen among the true best from `least` to `most` times: how many parts hold one, mean over `classes`."""

    least: int
    most: int
    classes: int
    copies: float
    missing: int


class Part(Strict):
    """A cluster or expert. rows: that opened it first. words: their commonest answers; missed: those it lost most."""

    number: int
    size: int
    rows: int
    p_at_1: float
    p_at_5: float
    words: list[str]
    missed: list[str]


class Parts(Strict):
    """All clusters or experts, whichever `kind` says. shares: of rows that open each; both lists by number."""

    kind: str
    sizes: list[int]
    shares: list[float]
    unused: int
    effective: float
    opened: float
    copies: list[Copies]
    worst: list[Part]


class MissedClass(Strict):
    """A class that was among the true five best `times` times, and was not returned `missed` times."""

    word: str
    times: int
    missed: int


class SampleFigures(Strict):
    """What was measured on one sample. threads: of each session.

    shared_rows: on which all points were measured. timed_rows: of those, how many were timed.
    """

    sample: str
    rows: int
    shared_rows: int
    timed_rows: int
    threads: int
    device: str
    points: list[Point]
    batch_times: dict[int, float]
    candidates: Candidates
    calibration: Calibration | None
    parts: Parts | None
    missed: list[MissedClass]


class Loading(Strict):
    """A load in a process of its own. seconds: hashes, sessions and canary. private, mapped: bytes gained by it."""

    seconds: float
    private: int | None
    mapped: int | None


class TuneTrials(Strict):
    """What `shortlist tune` recorded: targets by k, rows of a timed request, the outcome, every head that it tried."""

    targets: dict[int, float]
    batch: int
    sentence: str
    points: list[Point]


class Verdict(Strict):
    """Whether the promise is kept: in a few words, and in a sentence."""

    status: Status
    heading: str
    sentence: str


class Figures(Strict):
    """The whole report. digest: of the manifest. asked: P@k by k that the export was asked for, empty for none.

    promise: P@k by k that the samples are held against, and `promise_source` says whose.
    """

    digest: str
    asked: dict[int, float]
    promise: dict[int, float]
    promise_source: str
    verdict: Verdict
    domains: list[Domain]
    measured: SampleFigures
    loading: Loading | None
    tried: TuneTrials | None


def read_figures(bundle: Bundle) -> Figures | None:
    """The figures of an earlier report on this very bundle, or None."""
    try:
        figures = Figures.model_validate_json((bundle.folder / REPORT_FOLDER / FIGURES_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
    return figures if figures.digest == bundle.manifest.digest else None
