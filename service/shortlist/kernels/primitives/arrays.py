"""Arrays as compiled loops take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray

Ints = npt.NDArray[np.int32]
Values = TypeVar("Values", bound=npt.NDArray[Any])

FLOAT_BYTES = 4  # bytes


def mapped(path: Path) -> FloatArray:
    """A raw file of the bundle, shared with whoever maps it; writable in name: numba knows such types faster."""
    return np.asarray(np.memmap(path, np.float32, "c"))


def as_carray(values: Values) -> Values:
    """`values`, or a copy where they are not as usual: for others would be compiled while a request waits."""
    return values if values.flags.carray else values.copy()
