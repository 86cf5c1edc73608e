"""Arrays as compiled loops take them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Arrays = dict[str, npt.NDArray[Any]]  # by the names that a file of tensors gives them
Values = TypeVar("Values", bound=npt.NDArray[Any])


def as_carray(values: Values) -> Values:
    """Return `values`, copied unless contiguous, aligned and writable, as a pointer to it needs."""
    return values if values.flags.carray else values.copy()
