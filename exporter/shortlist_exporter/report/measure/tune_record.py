"""What `shortlist tune` recorded in the bundle, as points beside this head."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from shortlist_exporter.records import tuning
from shortlist_exporter.records.report import Point, TuneTrials


def read_trials(folder: Path) -> TuneTrials | None:
    """The record of the bundle at `folder`; None where it was not tuned, or by another version of Shortlist."""
    try:
        record = tuning.read_record(folder)
    except (OSError, ValidationError):
        return None
    if record is None:
        return None
    return TuneTrials(
        targets=record.promise.precision,
        batch=record.promise.batch,
        sentence=record.sentence,
        points=[make_point(trial) for trial in record.trials],
    )


def make_point(trial: tuning.Trial) -> Point:
    """A trial on the test split where it came so far, else on the tune split."""
    figures = trial.test or trial.tune
    return Point(
        label=trial.label,
        kind="tried",
        precision={k: share.mean for k, share in figures.precision.items()},
        us=figures.us,
        times_dense=figures.speedup,
        macs=trial.cost_macs,
        scored=figures.scored,
    )
