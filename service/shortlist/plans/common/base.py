"""What every plan offers, and the arithmetic that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, FloatArray, IdArray, PlanResult

from .selection import ranked
from .tally import Tally

MOST_ROWS = 256  # in one call
MOST_COMPILED = 64  # compiled loops keep so many of the best in order, one by one
CHUNK_BYTES = 4 << 20  # logits of one chunk of rows: stays in the last-level cache


class Plan(ABC):
    """route -> run sessions -> merge, over arrays. Knows no HTTP.

    fallback: the bundle's dense head, for rows that the plan is not sure of; None where it was left out, or where the
    head is its own reference. tally: how many tails rows opened, of plans that have tails.
    """

    fallback: Plan | None = None
    tally: Tally | None = None

    @abstractmethod
    def __init__(self, bundle: Bundle, device: str, threads: int) -> None:
        """Open the bundle's graphs."""

    @abstractmethod
    def topk(self, contexts: FloatArray, k: int, legal: ClassFilter) -> PlanResult:
        """The k best legal classes of `contexts` [B, d]; -1 and -inf where fewer are legal."""

    @abstractmethod
    def log_normalizer(self, contexts: FloatArray) -> FloatArray:
        """[B, d] -> [B]: log of the sum of exp(logit), as `topk` normalises."""

    def distribution(self, contexts: FloatArray) -> FloatArray | None:
        """[B, d] -> logits [B, V] float32 whose softmax is the plan's own full distribution, -inf for padding.

        Their log-sum-exp is `log_normalizer`. None where the plan has no logits for classes that it does not score.
        """
        del contexts
        return None

    def truth(self) -> Plan:
        """Of a head that is its own reference: the plan whose `distribution` and answers are the truth."""
        return self

    def prefers_dense(self, k: int) -> bool:
        """Whether so large a k is better answered by the exact head, where the bundle has it."""
        return False

    def width(self, k: int) -> int:
        """How widely a request for k classes is searched: rows of equal width may share a call for their largest k.

        The first k of such an answer are those that k alone would have given.
        """
        return k

    def parts(self) -> list[IdArray]:
        """Class ids [n] of each cluster or expert that a row may open; none where the plan has no such parts."""
        return []

    def routes(self, contexts: FloatArray) -> list[tuple[int, ...]]:
        """The parts that each row of `contexts` [B, d] opens, best first; none for a row that dense answers."""
        return [()] * len(contexts)

    @abstractmethod
    def max_rows(self) -> int:
        """How many rows to give in one call, so that intermediate arrays stay in the cache."""


def chunk_rows(classes: int, budget: int = CHUNK_BYTES) -> int:
    """Rows whose float32 logits [rows, classes] fit `budget` bytes, from 1 to `MOST_ROWS`."""
    return max(1, min(MOST_ROWS, budget // (4 * classes)))


def by_chunks(
    call: Callable[[FloatArray, ClassFilter], PlanResult], contexts: FloatArray, legal: ClassFilter, step: int
) -> PlanResult:
    """`call` with `step` rows of `contexts` [B, d] at a time and their lists; once where there are none."""
    starts = range(0, max(len(contexts), 1), step)
    return PlanResult.concat(
        [call(contexts[start : start + step], legal.slice_rows(start, start + step)) for start in starts]
    )


def log_sum_exp(logits: FloatArray) -> np.float32:
    """Log of the sum of exp(logits) [V], in float32; NaN or infinite where a logit is. Overwrites `logits`."""
    peak = logits.max()
    if peak == -np.inf:
        return np.float32(-np.inf)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
        np.subtract(logits, peak, out=logits)
        np.exp(logits, out=logits)
        return np.float32(peak + np.log(logits.sum()))


def take_best(logits: FloatArray, ids: IdArray | None, k: int) -> tuple[IdArray, FloatArray]:
    """The k best of one row: ids [k] int64 and logits [k] float32, with -1 beside -inf.

    `logits` [m] belong to the ascending `ids` [m], or to 0..m-1.
    """
    best = ranked(logits, k)
    if best.size == k and logits[best[-1]] != -np.inf:
        return best if ids is None else ids[best], logits[best]
    chosen = np.full(k, -np.inf, np.float32)
    chosen[: best.size] = logits[best]
    classes = np.full(k, NO_CLASS, np.int64)
    classes[: best.size] = best if ids is None else ids[best]
    classes[chosen == -np.inf] = NO_CLASS
    return classes, chosen
