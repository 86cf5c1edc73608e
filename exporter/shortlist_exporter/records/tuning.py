"""`report/tune.json`: everything that was tried, how it did, and why one head was chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field
from shortlist.bundle.files import REPORT_FOLDER
from shortlist.bundle.manifest import Strict
from shortlist.evaluation.statistics import Share

TUNE_FORMAT = 1
TUNE_FILE = "tune.json"


class Promise(Strict):
    """What the head is to keep, for requests of `batch` rows on `device`; None: not asked for."""

    precision: dict[int, float] = Field(default={}, description="k -> least P@k")
    logprob_error: float | None = Field(default=None, description="most mean |error| of returned log-probs, nats")
    memory: int | None = Field(default=None, description="most bytes of the bundle's graphs, weights and index")
    batch: int = Field(default=1, description="rows of a request")
    threads: int = Field(default=1, description="threads of each session")
    device: str = "cpu"


class Part(Strict):
    """One of the three splits. documents: None where the contexts do not say."""

    rows: int
    documents: int | None = None


class SplitFigures(Strict):
    """One head on distinct rows of one split, dense in the same blocks; requests for the largest k are timed."""

    rows: int
    precision: dict[int, Share] = Field(description="k -> P@k of requests for k, with its 95 % interval")
    logprob_error: float = Field(description="mean |error| of the returned log-probabilities, nats")
    logprob_error_high: float = Field(description="upper end of its 95 % interval, nats")
    us: float = Field(description="mean of a call, microseconds")
    us_p99: float = Field(description="99th percentile of a call, microseconds")
    dense_us: float = Field(description="mean of a call of the dense head of the same runtime, microseconds")
    speedup: float = Field(description="dense_us / us")
    scored: float = Field(description="mean of the classes scored for a row")
    dense_share: float = Field(description="share of rows that the dense head answered")


class Trial(Strict):
    """One head: a method, its options, and what it did at the last rung that it reached."""

    method: str
    options: dict[str, str] = Field(description="as `shortlist export --set` takes them, but for `setting`")
    setting: dict[str, int] = Field(default={}, description="options that are changed without fitting again")
    rung: int = Field(description="0: few contexts to fit, few rows to measure; each higher one more of both")
    fit_rows: int
    fit_seconds: float
    bytes: int = Field(description="of the bundle's graphs, weights and index")
    cost_macs: float = Field(description="multiply-adds a query relative to dense, by the classes scored")
    cost_bytes: float = Field(description="bytes of weights touched a query relative to dense, by the same")
    tune: SplitFigures = Field(description="its log-prob error: as the fit has it, before calibration for `setting`")
    test: SplitFigures | None = Field(default=None, description="None: never looked at on test")

    @property
    def label(self) -> str:
        """Method and options in a line."""
        options = {**self.options, **self.setting}
        return " ".join([self.method, *(f"{name}={value}" for name, value in options.items())])


class Omission(Strict):
    """Something that the search left out or gave up, and why."""

    what: str
    why: str


class TuneRecord(Strict):
    """The content of `report/tune.json`.

    chosen: index into `trials`; None where no head keeps the promise and dense was not allowed. looks: heads that were
    held against the test split, the chosen one included: each but the last failed there. sentence: the outcome.
    """

    format: int = TUNE_FORMAT
    promise: Promise
    fit: Part
    tune: Part
    test: Part
    trials: list[Trial] = Field(description="fastest first")
    left: list[Omission] = Field(default=[], description="what the time budget or a fault left out")
    chosen: int | None = None
    looks: int = 0
    interrupted: bool = Field(default=False, description="stopped by hand or by the time budget before its end")
    seconds: float = Field(default=0.0, description="of the whole search")
    seed: int = 0
    machine: str = ""
    sentence: str = ""

    def summary(self) -> dict[str, Any]:
        """The part of the record that goes into the manifest's provenance."""
        return {
            "promise": self.promise.model_dump(mode="json", exclude_none=True),
            "heads_tried": len(self.trials),
            "looks_at_test": self.looks,
            "interrupted": self.interrupted,
            "sentence": self.sentence,
        }


def write_record(folder: Path, record: TuneRecord) -> None:
    """Write `report/tune.json` of the bundle at `folder`."""
    (folder / REPORT_FOLDER).mkdir(exist_ok=True)
    (folder / REPORT_FOLDER / TUNE_FILE).write_text(record.model_dump_json(indent=1) + "\n", "utf-8")


def read_record(folder: Path) -> TuneRecord | None:
    """The record in the bundle at `folder`, or None where it was not tuned."""
    path = folder / REPORT_FOLDER / TUNE_FILE
    return TuneRecord.model_validate_json(path.read_bytes()) if path.is_file() else None
