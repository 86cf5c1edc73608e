"""What `shortlist tune` recorded in the bundle, as points beside this head."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from ..tuning import record
from .figures import Point, Tried


def read(folder: Path) -> Tried | None:
    """The record of the bundle at `folder`; None where it was not tuned, or by another version of Shortlist."""
    try:
        found = record.read(folder)
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


def point_of(trial: record.Trial) -> Point:
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
