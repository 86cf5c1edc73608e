"""The n largest of many scores, without sorting them.

A threshold is guessed from every `STRIDE`-th score, the scores above it are kept, and only those are
partitioned: about a tenth of the time of `numpy.argpartition` over 50,000 scores, and the same answer.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .result import FloatArray

STRIDE = 16
SMALL = 4096  # up to here a plain partition is as fast
SLACK = 3.0  # standard deviations of the sample's count that the guess allows for

Indices = npt.NDArray[np.intp]


def guess_threshold(scores: FloatArray, n: int) -> np.float32:
    """A value that about n (rather more than fewer) of `scores` [V] reach."""
    sample = scores[::STRIDE]
    expected = n / STRIDE
    rank = min(math.ceil(expected + SLACK * math.sqrt(expected)) + 1, sample.size)
    threshold: np.float32 = np.partition(sample, sample.size - rank)[sample.size - rank]
    return threshold


def keep_largest(values: FloatArray, n: int) -> Indices:
    """Positions of the n largest `values` [m], ascending; of equal values the earlier ones."""
    if n >= values.size:
        return np.arange(values.size)
    bar = np.partition(values, values.size - n)[values.size - n]
    kept = values > bar
    level = np.flatnonzero(values == bar)[: n - np.count_nonzero(kept)]
    kept[level] = True
    return np.flatnonzero(kept)


def largest(scores: FloatArray, n: int) -> Indices:
    """Indices of the n largest `scores` [V], ascending; of equal scores the lower ids.

    Equals a stable sort by descending score cut to n, but faster.
    """
    if n >= scores.size or scores.size <= SMALL:
        return keep_largest(scores, n)
    above = np.flatnonzero(scores >= guess_threshold(scores, n))
    if above.size < n:
        return keep_largest(scores, n)
    return above[keep_largest(scores[above], n)]


def ranked(logits: FloatArray, k: int) -> Indices:
    """Positions of the k largest `logits` [m], best first; of equal logits the earlier ones."""
    best = largest(logits, k)
    return best[np.argsort(-logits[best], kind="stable")]
