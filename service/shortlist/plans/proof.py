"""What proofs by numpy know of one row: bounds of all logits, exact logits of some classes, what both prove."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, FloatArray, IdArray, PlanResult
from shortlist.core.rounding import Rounding
from shortlist.kernels.proofs import ANCHOR_CLASSES
from shortlist.plans.common.normalizer import log_sum_exp
from shortlist.plans.common.selection import find_nth_largest

INFINITY = np.float32(np.inf)
LOWEST_FLOAT32: np.float32 = np.finfo(np.float32).min
SMALL_SPREAD = 1e-3  # nats: a bound that needs no growth
COVER_NATS = 1e-5  # what sums of exponentials lose in float32


@dataclass
class RowBounds:
    """One row's context [d], estimates [V] and spread, and once it is computed the upper bounds [V] of its logits."""

    context: FloatArray
    estimate: FloatArray
    spread: float
    upper: FloatArray = field(default_factory=lambda: np.empty(0, np.float32))

    def holds(self, logits: FloatArray, reach: FloatArray, rounding: Rounding) -> bool:
        """Whether `logits` [V] in float32 lie within `reach` [V] of their estimates, and their own rounding."""
        real = (logits > -INFINITY).nonzero()[0]
        most = reach[real] + rounding.measure_slack(self.context, real)
        return bool((np.abs(self.estimate[real] - logits[real]) <= most).all())


class Rescored(NamedTuple):
    """Classes of one row with exact logits: ascending ids [n], logits [n], and by how much each may be off, [n]."""

    ids: IdArray
    logits: FloatArray
    slack: FloatArray


class Normalizer(NamedTuple):
    """A row's log-normaliser, and by how many nats it may be off."""

    value: float
    error: float


class Proof(NamedTuple):
    """A result of one row, proved, and by how many nats its log-probabilities may be off."""

    result: PlanResult
    error: float


def bound_growth(most: float) -> float:
    """(exp b - 1 - b) / b^2 at the largest b, under `USELESS_SPREAD`; about a half near 0."""
    return (math.expm1(most) - most) / most**2 if most > SMALL_SPREAD else 1.0


def mask_permitted(rescored: Rescored, lists: ClassFilter) -> FloatArray:
    """The logits [n] of one row's classes, -inf where its lists exclude them."""
    return np.where(lists.mask(rescored.ids, 0), rescored.logits, -INFINITY) if lists.restricts else rescored.logits


def count_first(k: int, classes: int) -> int:
    """How many of `classes` are scored exactly before anything is known."""
    return min(classes, max(ANCHOR_CLASSES, 2 * k))


def cover_best(log_normalizer: float, logits: FloatArray) -> np.float32 | None:
    """The log-normaliser, raised to what the best `logits` [k] add up to, by no more than rounding.

    None where that is more: then the estimates of others were too low, and dense has to answer.
    """
    covered = max(np.float32(log_normalizer), log_sum_exp(logits.copy()))
    return covered if covered - np.float32(log_normalizer) <= COVER_NATS * max(1.0, abs(log_normalizer)) else None


def find_bar(rescored: Rescored, lists: ClassFilter, k: int) -> np.float32:
    """What k permitted classes reach for certain; else the least number."""
    if rescored.ids.size < k:
        return LOWEST_FLOAT32
    return max(LOWEST_FLOAT32, find_nth_largest(mask_permitted(rescored, lists) - rescored.slack, k))


def pad_best(ids: IdArray, logits: FloatArray, k: int) -> tuple[IdArray, FloatArray]:
    """The best classes [n] and their logits [n] as [k], with -1 and -inf where n is under k."""
    missing = k - ids.size
    return (
        np.pad(ids, (0, missing), constant_values=NO_CLASS),
        np.pad(logits, (0, missing), constant_values=-INFINITY),
    )
