"""The n largest of many scores, by compiled loops: bars found by bisection, which vectorises where sorting does not."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .byte_products import compiled
from .result import FloatArray

LOWEST = np.float32(-np.inf)
STRIP = 8  # scores of which the best is looked at first
NO_SIZES = np.empty(0, np.int32)

Ints = npt.NDArray[np.int32]


@compiled
def reached(scores: FloatArray, sizes: Ints, bar: np.float32) -> np.int32:
    """The sum of the sizes of what reaches a bar; every size is 1 where none are given."""
    count = np.int32(0)
    if sizes.size:
        for i in range(scores.size):
            count += sizes[i] if scores[i] >= bar else np.int32(0)
    else:
        for i in range(scores.size):
            count += np.int32(scores[i] >= bar)
    return count


@compiled
def bar_for(scores: FloatArray, sizes: Ints, wanted: int) -> np.float32:
    """The highest bar that `scores` [n] of `wanted` in all, by `sizes`, reach, or one that as many do; by bisection.

    -inf counts for nothing: what is wanted beyond the rest is left out.
    """
    low, high = np.float32(np.inf), LOWEST
    for i in range(scores.size):
        score = scores[i]
        high = score if score > high else high
        low = score if LOWEST < score < low else low
    if not high > LOWEST:
        return np.float32(np.inf)
    if reached(scores, sizes, high) >= wanted:
        return high
    count = reached(scores, sizes, low)
    while count > wanted:
        middle = low + (high - low) * np.float32(0.5)
        if not low < middle < high:
            break
        found = reached(scores, sizes, middle)
        if found >= wanted:
            low, count = middle, found
        else:
            high = middle
    return low


@compiled
def reaching(scores: FloatArray, bar: np.float32, chosen: Ints) -> int:
    """Positions of the `scores` [n] that reach a bar, ascending, in `chosen`; returns how many."""
    count = 0
    for i in range(scores.size):
        if scores[i] >= bar:
            chosen[count] = i
            count += 1
    return count


@compiled
def best_previews(scores: FloatArray, wanted: int, chosen: Ints) -> int:
    """Positions of the `wanted` best `scores` [n], ascending; returns how many, more where some are equal.

    The best of every `STRIP` scores are compared first: as many scores reach a bar as such peaks do, and not many
    more; those few are compared among each other.
    """
    if not scores.size:
        return 0
    length = -(-scores.size // STRIP)
    peaks = scores[:length].copy()
    for start in range(length, scores.size, length):
        part = scores[start : start + length]
        for i in range(part.size):
            peaks[i] = part[i] if part[i] > peaks[i] else peaks[i]
    rough = bar_for(peaks, NO_SIZES, wanted)
    if reached(peaks, NO_SIZES, rough) < wanted:  # then all scores are compared
        rough = bar_for(scores, NO_SIZES, scores.size)
    near = reaching(scores, rough, chosen)
    values = np.empty(near, np.float32)
    for i in range(near):
        values[i] = scores[chosen[i]]
    bar, count = bar_for(values, NO_SIZES, wanted), 0
    for i in range(near):
        if values[i] >= bar:
            chosen[count] = chosen[i]
            count += 1
    return count
