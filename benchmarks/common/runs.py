"""Runs on disk: one JSON file each, named by a hash of its inputs, so that a sweep resumes where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import BaseModel

RUN_FORMAT = 1  # raise when what is measured, or how, changes
REMARKABLE_SLOW_SHARE = 0.2  # share of calls as slow as dense that is worth a word
SLOW_CALLS_REMARK = "of calls as slow as dense"


class BatchTimes(BaseModel):
    """One batch size: microseconds a call, and the dense layer's in the same blocks."""

    mean: float
    median: float
    p99: float
    dense_mean: float
    dense_median: float
    speedup: float  # mean dense time / mean time
    slow_share: float  # calls that took at least nine tenths of dense's median


def describe_slowness(times: BatchTimes) -> list[str]:
    """A remark where a good part of the calls took as long as dense's."""
    return [f"{times.slow_share:.0%} {SLOW_CALLS_REMARK}"] if times.slow_share >= REMARKABLE_SLOW_SHARE else []


class Share(BaseModel):
    """A precision and its 95 % confidence interval (over rows; rows of one document are not independent)."""

    value: float
    low: float
    high: float


class Run(BaseModel):
    """What one contender, at one setting, did on one data set."""

    version: int = RUN_FORMAT
    dataset: str
    fingerprint: str
    classes: int = 0  # V of the layer; 0 in runs that were stored without it
    dim: int = 0  # d
    contender: str
    revision: str = ""  # the contender's
    build: dict[str, Any]
    setting: dict[str, Any] = {}
    threads: int
    build_seconds: float = 0.0
    bytes: int = 0
    rows: int = 0
    precision: dict[int, Share] = {}  # of the timed calls
    spent: dict[int, BatchTimes] = {}  # by batch
    scored_mean: float | None = None
    dense_share: float | None = None  # as the contender tells; None where it does not
    repeat_ratio: float | None = None  # median time of rows asked a moment ago / of new ones
    flags: list[str] = []
    error: str | None = None
    machine: str = ""
    packages: dict[str, str] = {}

    @property
    def label(self) -> str:
        """Contender, build and setting in a line."""
        parts = [
            ", ".join(f"{name} {value}" for name, value in choices.items()) for choices in (self.build, self.setting)
        ]
        options = "; ".join(part for part in parts if part)
        return f"{self.contender} ({options})" if options else self.contender

    @property
    def request_key(self) -> str:
        """A key that differs between runs on the same data whose contender, build, setting or batches differ."""
        single = list(self.spent) == [1]
        return hash_parts(self.contender, self.revision, self.build, self.setting, self.threads, self.rows, single)

    def reaches(self, p1: float, p5: float) -> bool:
        """Whether both precisions were reached."""
        return bool(self.precision) and self.precision[1].value >= p1 and self.precision[5].value >= p5


def hash_parts(*parts: Any) -> str:
    """A file name: a hash of `parts`, which are JSON values, and of the format of runs."""
    return hashlib.sha256(json.dumps([RUN_FORMAT, *parts], sort_keys=True).encode()).hexdigest()[:20]


class Store:
    """A folder of JSON files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, key: str) -> Any | None:
        """What was stored, or None."""
        path = self.folder / f"{key}.json"
        return json.loads(path.read_text("utf-8")) if path.is_file() else None

    def write(self, key: str, value: Any) -> None:
        """Store a JSON value, whole or not at all."""
        partial = self.folder / f"{key}.partial"
        partial.write_text(json.dumps(value, indent=1), "utf-8")
        partial.rename(self.folder / f"{key}.json")

    def drop(self, key: str) -> None:
        """Forget a value, if there is one."""
        (self.folder / f"{key}.json").unlink(missing_ok=True)

    def runs(self) -> list[Run]:
        """All runs in the folder, ordered by file name; other values are left out."""
        values = [json.loads(path.read_text("utf-8")) for path in sorted(self.folder.glob("*.json"))]
        return [Run.model_validate(value) for value in values if "contender" in value]


def read_runs(path: Path) -> list[Run]:
    """The runs in a file of one JSON value a line; none where there is no file."""
    lines = path.read_text("utf-8").splitlines() if path.is_file() else []
    return [run for line in lines if (run := Run.model_validate_json(line)).version == RUN_FORMAT]


def write_runs(path: Path, runs: Sequence[Run]) -> None:
    """Write such a file, in an order that does not depend on that of the runs."""
    partial = path.with_suffix(".partial")
    partial.write_text("".join(sorted(run.model_dump_json() + "\n" for run in runs)), "utf-8")
    partial.rename(path)


def read_versions(names: tuple[str, ...]) -> dict[str, str]:
    """The installed versions of packages by name."""
    return {name: metadata.version(name) for name in names}
