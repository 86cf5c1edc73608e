"""What an array of a bundle must be before compiled loops or plans use it unchecked: dtype, shape, values.

Sizes have names. Some are known from the manifest (`V`, `d`); an array in whose shape a name occurs first says what it
stands for, and all later ones have to agree. Each check of values returns what is wrong with an array, as the end of a
sentence that begins with its name, or None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import NO_CLASS

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]
Sizes = dict[str, int]
Check = Callable[[Array, Sizes], str | None]


class ArrayRule(NamedTuple):
    """What one array must be.

    shape: sizes by name, `name+1` for one more than the size of that name. checks: of its values, each for an array of
    this dtype and shape. optional: whether it may be missing.
    """

    dtype: str
    shape: tuple[str, ...]
    checks: tuple[Check, ...] = ()
    optional: bool = False

    def find_fault(self, array: Array, sizes: Sizes) -> str | None:
        """What is wrong with `array`, or None; `sizes` gets the names that its shape settles."""
        if array.dtype != self.dtype:
            return f"is {array.dtype} instead of {self.dtype}"
        settled = match_shape(array.shape, self.shape, sizes)
        if settled is None:
            return f"has shape {list(array.shape)} instead of {self.describe_shape(sizes)}"
        sizes |= settled
        return next((fault for check in self.checks if (fault := check(array, sizes)) is not None), None)

    def describe_shape(self, sizes: Sizes) -> str:
        """The shape with the sizes that are known, as `[49152, W]`."""
        parts = (name.partition("+") for name in self.shape)
        known = (
            f"{sizes[name] + int(more or 0)}" if name in sizes else name + plus + more for name, plus, more in parts
        )
        return f"[{', '.join(known)}]"


def match_shape(shape: tuple[int, ...], names: tuple[str, ...], sizes: Sizes) -> Sizes | None:
    """The sizes that `shape` settles beyond `sizes`; None where it contradicts them or one would be under 1."""
    if len(shape) != len(names):
        return None
    settled: Sizes = {}
    for length, token in zip(shape, names, strict=True):
        name, _, more = token.partition("+")
        size = length - int(more or 0)
        if size < 1 or (sizes | settled).get(name, size) != size:
            return None
        settled[name] = size
    return settled


def find_faults(arrays: Arrays, rules: Mapping[str, ArrayRule], sizes: Sizes) -> str | None:
    """What is wrong with the first of `arrays` that breaks its rule, as a clause with its name, or None.

    Arrays without a rule may be anything: nothing reads them.
    """
    for name, rule in rules.items():
        if name not in arrays:
            if not rule.optional:
                return f"has no '{name}'"
            continue
        fault = rule.find_fault(arrays[name], sizes)
        if fault is not None:
            return f"has '{name}', which {fault}"
    return None


def check_finite(array: Array, sizes: Sizes) -> str | None:
    """Every number is finite."""
    del sizes
    return None if np.isfinite(array).all() else "holds NaN or infinity"


def check_halves(array: Array, sizes: Sizes) -> str | None:
    """Every float32 number is finite and has zeros in its lower half, so that the upper one tells all."""
    is_exact = not (np.ascontiguousarray(array).view(np.uint32) & 0xFFFF).any()
    return check_finite(array, sizes) if is_exact else "holds a number that needs more than 16 bits"


def check_positive(array: Array, sizes: Sizes) -> str | None:
    """Every number is finite and over 0."""
    del sizes
    return None if array.min() > 0 and array.max() < np.inf else "holds a number that is not over 0 and finite"


def check_not_negative(array: Array, sizes: Sizes) -> str | None:
    """Every number is finite and 0 or more."""
    del sizes
    return None if array.min() >= 0 and array.max() < np.inf else "holds a number that is not finite, or under 0"


def check_finite_or_lowest(array: Array, sizes: Sizes) -> str | None:
    """Every number is finite, or -inf as at classes that are padding."""
    del sizes
    return None if array.max() < np.inf else "holds NaN or +infinity"


def check_classes(array: Array, sizes: Sizes) -> str | None:
    """Every number is a class, 0 to V - 1."""
    return find_outside(array, 0, sizes["V"])


def check_classes_or_padding(array: Array, sizes: Sizes) -> str | None:
    """Every number is a class, or -1."""
    return find_outside(array, NO_CLASS, sizes["V"])


def find_outside(array: Array, first: int, classes: int) -> str | None:
    """The first number that is under `first`, or no class."""
    if first <= array.min() and array.max() < classes:
        return None
    outside = array[(array < first) | (array >= classes)].flat[0]
    return f"holds id {outside} but classes go from 0 to {classes - 1}"


def check_ranks(array: Array, sizes: Sizes) -> str | None:
    """Every number is a rank, from 0, and no later than its own place in the row."""
    del sizes
    is_rank = (array >= 0) & (array <= np.arange(array.shape[1]))
    return None if is_rank.all() else "holds a rank beyond its place"


def check_distinct(array: Array, sizes: Sizes) -> str | None:
    """No class occurs twice; all are classes."""
    is_listed = np.zeros(sizes["V"], bool)
    is_listed[array] = True
    return None if np.count_nonzero(is_listed) == array.size else "holds a class twice"


def make_offsets_check(items: str, longest: int | None = None) -> Check:
    """A check of the places where parts begin: from 0 on, each part of 1 to `longest` items, to the size `items`."""

    def check(array: Array, sizes: Sizes) -> str | None:
        end, most = sizes[items], sizes[items] if longest is None else longest
        if array[0] != 0 or array[-1] != end:
            return f"goes from {array[0]} to {array[-1]} instead of from 0 to {end}"
        if array.min() < 0 or array.max() > end:  # differences of others could overflow
            return f"holds a place outside of 0 to {end}"
        lengths = np.diff(array)
        if lengths.min() < 1 or lengths.max() > most:
            return f"has parts of {lengths.min()} to {lengths.max()} instead of 1 to {most}"
        return None

    return check


def find_unsorted(ids: Array, offsets: Array) -> bool:
    """Whether `ids` [n] do not ascend in one of the parts that begin at `offsets` [r + 1]."""
    ascends = np.diff(ids) > 0
    ascends[offsets[1:-1] - 1] = True  # from one part to the next
    return not ascends.all()
