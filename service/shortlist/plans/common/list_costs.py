"""What a search of a large head costs with lists and without: timed once, at the export, so that choices stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from shortlist.bundle.list_costs import ListCosts
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import FloatArray, IdArray
from shortlist.core.units import MICROSECONDS_PER_SECOND

from .base import Plan, take_best
from .crossover import time_call
from .exact_rows import ExactRows

TIMED_K = 10  # classes asked for
MOST_ASKED = 512  # classes that a search without lists is asked for at most
ASKED_KS = (TIMED_K, 32, 128, MOST_ASKED)
TIMED_CONTEXTS = 8
TIMED_CALLS = 3  # with each context, of which the fastest counts: others were disturbed
TIMED_LISTED = 1024, 16_384  # classes of lists that are scored: a short one takes what is not of its length
MIN_PER_LISTED = 1e-4  # microseconds, where other work made the short list take as long as the long one
ALLOWED_DIVISOR = 10  # of all classes: so long an allow list

# Microseconds, guessed for heads whose export timed none: measured on an AMD EPYC, of layers of 64 and 576 columns.
GUESSED_SEARCH = 300.0  # of a search for TIMED_K classes
GUESSED_PER_ASKED = 2.7  # for each class more that is asked for
GUESSED_PER_LISTED = 0.015  # for each class of a list, beside the reading of its row
GUESSED_BYTES = 12_000  # of rows read in a microsecond


def guess_costs(dim: int) -> ListCosts:
    """Costs of a head of `dim` columns whose own were not timed."""
    dearest = GUESSED_SEARCH + GUESSED_PER_ASKED * (MOST_ASKED - TIMED_K)
    return ListCosts(
        ks=(TIMED_K, MOST_ASKED),
        asked=(GUESSED_SEARCH, dearest),
        listed=GUESSED_PER_LISTED + 4 * dim / GUESSED_BYTES,
    )


def measure_costs(plan: Plan, rows: ExactRows, exact: Plan | None, classes: int, contexts: FloatArray) -> ListCosts:
    """Time the ways to answer rows with lists on `contexts` [n, d]; a second for millions of classes.

    exact: what answers exactly, or None. classes: V.
    """
    random = np.random.default_rng(0)
    contexts = contexts[:TIMED_CONTEXTS]
    ks = [k for k in ASKED_KS if k <= classes and not plan.prefers_dense(k)] or [TIMED_K]
    asked = [time_rows(contexts, lambda row, k=k: plan.topk(row, k, UNRESTRICTED)) for k in ks]  # type: ignore[misc]
    allowed = ClassFilter(allow=choose_ids(random, classes, classes // ALLOWED_DIVISOR)[None])

    def time_list(size: int) -> float:
        lists = iter([choose_ids(random, classes, size) for _ in range(TIMED_CONTEXTS * TIMED_CALLS)])
        return time_rows(contexts, lambda row: score_list(plan, rows, row, next(lists)))  # their rows are in no cache

    short, long = (time_list(size) for size in TIMED_LISTED)
    return ListCosts(
        ks=tuple(ks),
        asked=tuple(np.maximum.accumulate(asked).tolist()),
        listed=max(MIN_PER_LISTED, (long - short) / (TIMED_LISTED[1] - TIMED_LISTED[0])),
        exact=None if exact is None else time_rows(contexts, lambda row: exact.topk(row, TIMED_K, allowed)),
    )


def score_list(plan: Plan, rows: ExactRows, row: FloatArray, ids: IdArray) -> None:
    """Find the best of an allow list [m] for `row` [1, d] by scores of all its classes."""
    if plan.score_lists(row, TIMED_K, ClassFilter(allow=ids[None])) is None:
        take_best(rows.score_row(row[0], ids), ids, TIMED_K)


def estimate_asked(costs: ListCosts, k: int) -> float:
    """Microseconds of a search without lists for `k` classes."""
    return float(np.interp(k, costs.ks, costs.asked))


def estimate_listed(costs: ListCosts, classes: int) -> float:
    """Microseconds to score a list of so many classes, and for the normaliser, which a search for few gives."""
    return costs.asked[0] + classes * costs.listed


def choose_ids(random: np.random.Generator, classes: int, count: int) -> IdArray:
    """About `count` of all classes, ascending and each once."""
    return np.unique(random.integers(0, classes, count))


def time_rows(contexts: FloatArray, call: Callable[[FloatArray], object]) -> float:
    """The mean over `contexts` [n, d] of the fastest of some calls with each, in microseconds."""
    fastest = [min(time_call(call, row[None]) for _ in range(TIMED_CALLS)) for row in contexts]
    return MICROSECONDS_PER_SECOND * float(np.mean(fastest))
