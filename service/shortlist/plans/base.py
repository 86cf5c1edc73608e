"""What every plan offers, and the arithmetic that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ..bundle import Bundle
from ..legal import Legal
from ..result import NO_CLASS, FloatArray, IdArray, PlanResult
from ..selection import ranked

CHUNK_BYTES = 4 << 20  # logits of one chunk of rows: stays in the last-level cache


class Plan(ABC):
    """route -> run sessions -> merge, over arrays. Knows no HTTP."""

    @abstractmethod
    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the bundle's graphs."""

    @abstractmethod
    def topk(self, contexts: FloatArray, k: int, legal: Legal) -> PlanResult:
        """The k best legal classes of `contexts` [B, d]; -1 and -inf where fewer are legal."""

    @abstractmethod
    def log_normalizer(self, contexts: FloatArray) -> FloatArray:
        """[B, d] -> [B]: log of the sum of exp(logit), as `topk` normalises."""

    def prefers_dense(self, k: int) -> bool:
        """Whether so large a k is better answered by the dense head, where the bundle has it."""
        return False

    @abstractmethod
    def max_rows(self) -> int:
        """How many rows to give in one call, so that intermediate arrays stay in the cache."""


def chunk_rows(classes: int, budget: int = CHUNK_BYTES) -> int:
    """Rows whose float32 logits [rows, classes] fit `budget` bytes, from 1 to 256."""
    return max(1, min(256, budget // (4 * classes)))


def log_sum_exp(logits: FloatArray) -> np.float32:
    """Log of the sum of exp(logits) [V], in float32. Overwrites `logits`."""
    peak = logits.max()
    if peak == -np.inf:
        return np.float32(-np.inf)
    np.subtract(logits, peak, out=logits)
    np.exp(logits, out=logits)
    return np.float32(peak + np.log(logits.sum()))


def take_best(logits: FloatArray, ids: IdArray | None, k: int) -> tuple[IdArray, FloatArray]:
    """The k best of one row: ids [k] int64 and logits [k] float32, with -1 beside -inf.

    `logits` [m] belong to the ascending `ids` [m], or to 0..m-1.
    """
    best = ranked(logits, k)
    chosen = np.full(k, -np.inf, np.float32)
    chosen[: best.size] = logits[best]
    classes = np.full(k, NO_CLASS, np.int64)
    classes[: best.size] = best if ids is None else ids[best]
    classes[chosen == -np.inf] = NO_CLASS
    return classes, chosen


def empty_result(rows: int, k: int) -> PlanResult:
    """Uninitialised arrays for `rows` answers."""
    return PlanResult(
        np.empty((rows, k), np.int64),
        np.empty((rows, k), np.float32),
        np.empty(rows, np.float32),
        np.empty(rows, np.int32),
    )
