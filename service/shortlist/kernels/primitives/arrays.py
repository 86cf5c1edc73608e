"""Arrays as compiled loops take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray

Ints = npt.NDArray[np.int32]
Values = TypeVar("Values", bound=npt.NDArray[Any])

FLOAT_BYTES = 4  # of a float32


def mapped(path: Path) -> FloatArray:
    """Map a raw file of float32, shared with other processes; writable in name, since numba finds that type faster."""
    return np.asarray(np.memmap(path, np.float32, "c"))


def as_carray(values: Values) -> Values:
    """Return `values`, copied unless contiguous, aligned and writable: numba would compile loops for other types."""
    return values if values.flags.carray else values.copy()
