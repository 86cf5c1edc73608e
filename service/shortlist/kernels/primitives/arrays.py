"""Arrays as compiled loops take them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Values = TypeVar("Values", bound=npt.NDArray[Any])

FLOAT = 4  # bytes


def behaved(values: Values) -> Values:
    """`values`, or a copy where they are not as usual: for others would be compiled while a request waits."""
    return values if values.flags.carray else values.copy()
