"""Types that the exporter's packages share, and progress."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

FloatArray = npt.NDArray[np.float32]
Progress = Callable[[str, int, int], None]  # stage, done, total


def quiet(stage: str, done: int, total: int) -> None:
    """Progress that goes nowhere."""
    del stage, done, total


class Cost(BaseModel):
    """Per query, relative to the dense head, every overhead product included."""

    macs: float
    bytes: float


def count_rows(
    progress: Progress, stage: str, rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> Callable[[int], None]:
    """A callback that adds up rows done in a stage."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        progress(stage, done, len(rows))

    return add
