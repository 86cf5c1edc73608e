"""What a search of a large head costs with lists and without, timed once for each loaded head."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray

from .base import Plan, take_best
from .exact_rows import ExactRows

TIMED_K = 10  # classes asked for
MOST_ASKED = 512  # classes that a search without lists is asked for at most
ASKED_KS = (TIMED_K, 32, 128, MOST_ASKED)
TIMED_CALLS = 3
TIMED_LISTED = 16_384  # classes of a list that is scored
TIMED_BANS = 1_000
ALLOWED_DIVISOR = 10  # of all classes: so long an allow list


class ListCosts(NamedTuple):
    """Seconds for one row.

    asked: of a search without lists for `ks` classes, both [n]. banned, allowed: of the plan's own search with a short
    ban list and with a long allow list. listed: for each class of a list that is scored.
    """

    ks: FloatArray
    asked: FloatArray
    banned: float
    allowed: float
    listed: float

    def estimate_asked(self, k: int) -> float:
        """Seconds of a search without lists for `k` classes."""
        return float(np.interp(k, self.ks, self.asked))

    def estimate_listed(self, classes: int) -> float:
        """Seconds to score a list of so many classes, and for the normaliser, which a search for few gives."""
        return float(self.asked[0]) + classes * self.listed


def measure_costs(plan: Plan, rows: ExactRows, classes: int, contexts: FloatArray) -> ListCosts:
    """Time the ways to answer rows with lists on `contexts` [n, d]; a tenth of a second for millions of classes."""
    random = np.random.default_rng(0)
    ks = [k for k in ASKED_KS if k == TIMED_K or not plan.prefers_dense(k)]
    asked = [time_rows(contexts, lambda row, k=k: plan.topk(row, k, UNRESTRICTED)) for k in ks]  # type: ignore[misc]
    bans, allowed, listed = (
        choose_ids(random, classes, count) for count in (TIMED_BANS, classes // ALLOWED_DIVISOR, TIMED_LISTED)
    )
    seconds = time_rows(contexts, lambda row: take_best(rows.score_row(row[0], listed), listed, TIMED_K))
    return ListCosts(
        np.array(ks, np.float32),
        np.array(asked, np.float32),
        time_rows(contexts, lambda row: plan.topk(row, TIMED_K, ClassFilter(ban=bans[None]))),
        time_rows(contexts, lambda row: plan.topk(row, TIMED_K, ClassFilter(allow=allowed[None]))),
        seconds / listed.size,
    )


def choose_ids(random: np.random.Generator, classes: int, count: int) -> IdArray:
    """About `count` of all classes, ascending and each once."""
    return np.unique(random.integers(0, classes, count))


def time_rows(contexts: FloatArray, call: Callable[[FloatArray], object]) -> float:
    """The median of some calls, each with one of `contexts` [n, d], in seconds."""
    seconds = []
    for number in range(TIMED_CALLS + 1):
        start = time.perf_counter()
        call(contexts[number % len(contexts)][None])
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds[1:]))  # the first one finds nothing in the caches
