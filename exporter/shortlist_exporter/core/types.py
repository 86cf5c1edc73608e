"""Types that the exporter's packages share, and a callback that reports progress."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from shortlist_models.progress import Progress, quiet

__all__ = ["Cost", "FloatArray", "Progress", "count_rows", "quiet"]

FloatArray = npt.NDArray[np.float32]


class Cost(BaseModel):
    """Multiply-adds and bytes of weights read by a query, relative to the dense head's, every overhead included."""

    macs: float
    bytes: float


def count_rows(
    progress: Progress, stage: str, rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> Callable[[int], None]:
    """A callback that adds up the rows done in a stage and reports them as progress."""
    done = 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        progress(stage, done, len(rows))

    return add
