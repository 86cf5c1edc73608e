"""What `shortlist tune` recorded in the bundle, as points beside this head."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from shortlist_exporter.records import tuning
from shortlist_exporter.records.report import Point, Tried


def read(folder: Path) -> Tried | None:
    """The record of the bundle at `folder`; None where it was not tuned, or by another version of Shortlist."""
    try:
        found = tuning.read(folder)
    except (OSError, ValidationError):
        return None
    if found is None:
        return None
    return Tried(
        targets=found.promise.precision,
        batch=found.promise.batch,
        sentence=found.sentence,
        points=[point_of(trial) for trial in found.trials],
    )


def point_of(trial: tuning.Trial) -> Point:
    """A trial on the test split where it came so far, else on the tune split."""
    seen = trial.test or trial.tune
    return Point(
        label=trial.label,
        kind="tried",
        precision={k: found.mean for k, found in seen.precision.items()},
        us=seen.us,
        times_dense=seen.speedup,
        macs=trial.cost_macs,
        scored=seen.scored,
    )
