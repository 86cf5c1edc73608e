"""Effort by the row where bans forbid its own best classes, as a recommender bans what was seen.

A look that finds the best classes of a row finds those that come next less surely: previews, groups and candidates are
fitted to the best. So the regression of `effort` is fitted once more, to calibration contexts of which some of the best
classes are banned.
"""

from __future__ import annotations

from functools import partial
from itertools import starmap
from typing import NamedTuple

import numpy as np
from shortlist.bundle.settings import LIST_LOOKS, LOOKS
from shortlist.core.filters import ClassFilter
from shortlist.evaluation.statistics import mark_hits
from shortlist.evaluation.truth import Truth
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, MOST_RAISED_K, list_looks
from shortlist.plans.grouped.plan import GroupedPlan

from .effort import EFFORT_DEPTHS, NEVER_ENOUGH, UNWEIGHTED, Outcomes, Weights, fit_looks, raise_estimate

MOST_BANNED = 120  # of a row's own best classes: of few more, rows are answered exactly
SEARCHES_PER_DEPTH = 1_200
MAX_OPENED = 60_000_000  # classes, by the widest looks of all searches for some k: fewer searches of larger layers
# Added to the estimates of the first look, and of later ones, for text that the head was not fitted on. There first
# looks miss what comes after a row's best classes 3 to 6 times as often as on text that it was where few are asked for,
# and 1.4 times where many are; later looks about as often (seven kinds, docs/log/looks.md).
NEW_KIND_LOG_ODDS = {"ban_effort": (2.2, 0.2), "wide_ban_effort": (0.8, 0.2)}


class BannedRows(NamedTuple):
    """Searches for k classes of rows whose `banned` best ones are banned. truth: `banned` + k classes and more."""

    k: int
    banned: int
    truth: Truth


def fit_ban_efforts(plan: GroupedPlan, truth: Truth, seed: int) -> dict[str, tuple[Weights, ...]]:
    """The weights of every look where few classes are asked for, and many: settings of the plan by their names.

    None for a head of which no class is left where one is banned. truth: of rows that the head has not seen, with
    classes enough for k of them after those that are banned.
    """
    random = np.random.default_rng(seed)
    searches = [rows for k in EFFORT_DEPTHS if k <= plan.max_k for rows in draw_searches(plan, truth, k, random)]
    parts = {
        "ban_effort": [rows for rows in searches if rows.k <= MOST_RAISED_K],
        "wide_ban_effort": [rows for rows in searches if rows.k > MOST_RAISED_K],
    }
    return {name: fit_ban_effort(plan, part, *NEW_KIND_LOG_ODDS[name]) for name, part in parts.items() if part}


def fit_ban_effort(
    plan: GroupedPlan, searches: list[BannedRows], first_log_odds: float, later_log_odds: float
) -> tuple[Weights, ...]:
    """The weights of every look, fitted to these searches, with what is added to the first look's and to later ones."""
    added = (first_log_odds, *[later_log_odds] * (LOOKS - 1))
    fitted = [fit_looks([measure_banned(plan, rows, number) for rows in searches]) for number in range(LOOKS)]
    return tuple(starmap(raise_estimate, zip(fitted, added, strict=True)))


def draw_searches(plan: GroupedPlan, truth: Truth, k: int, random: np.random.Generator) -> list[BannedRows]:
    """Searches for k classes, of any rows; as often few of the best are banned as many, of which k of `truth` are left.

    None where one banned class leaves fewer.
    """
    most = min(MOST_BANNED, min(truth.ids.shape[1], plan.order.size) - k)
    if most < 1:
        return []
    widest, rows = list_looks(plan.settings, k, plan.order.size)[-1].opened, len(truth.contexts)
    count = min(SEARCHES_PER_DEPTH, max(1, MAX_OPENED // widest))
    banned = np.exp(random.uniform(0, np.log(1 + most), count)).astype(np.int64)
    return [
        BannedRows(k, int(size), truth.take(np.sort(random.choice(rows, min(number, rows), replace=False))))
        for size, number in zip(*np.unique(banned, return_counts=True), strict=True)
    ]


def measure_banned(plan: GroupedPlan, rows: BannedRows, number: int) -> Outcomes:
    """What the look of this number gives for every row, after those before it."""
    assert plan.compiled is not None, "graphs take no looks"
    k, banned, (contexts, best) = rows.k, rows.banned, (rows.truth.contexts, rows.truth.best)
    looks = list_looks(plan.settings, k, plan.order.size)[: number + 1]
    unweighted = (UNWEIGHTED,) * len(looks)
    make = partial(plan.prepare_search(k), weights=unweighted, ban_weights=unweighted, list_looks=LIST_LOOKS)
    search, features = make(looks, bar=NEVER_ENOUGH), np.zeros((len(contexts), EFFORT_FEATURES), np.float32)
    bans = best.ids[:, :banned]
    ids = plan.compiled(contexts, search, ClassFilter(ban=bans), features).ids
    hits = mark_hits(np.concatenate([bans, ids], axis=1), best, banned + k)  # of equal classes any count
    return Outcomes(features.astype(np.float64), 1 - hits[:, banned:].mean(axis=1))
