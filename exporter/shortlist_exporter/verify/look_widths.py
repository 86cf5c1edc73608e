"""How many classes looks of plan `grouped` open for large k and for bans, by what narrower ones miss.

Layers differ: trained ones need a tenth of what made-up ones do for rows whose own best classes are banned, and text of
many kinds three times what text of one kind does for many classes.
"""

from __future__ import annotations

import numpy as np
from shortlist.bundle.settings import LIST_LOOKS, MOST_OPENED_PER_DEPTH, GroupedSettings
from shortlist.core.results import DoubleArray
from shortlist.evaluation.truth import Truth
from shortlist.kernels.grouped.effort import list_looks
from shortlist.plans.grouped.plan import GroupedPlan

from .ban_effort import BannedRows, measure_banned
from .effort import EFFORT_DEPTHS, change_settings, measure_look

# Classes opened and candidates for each of many classes asked for, of which the first that misses little is taken.
WIDTHS_PER_K = (100, 6), (150, 7), (200, 8), (250, 10), (350, 12), (500, 14)
MISS_DIVISOR = 2  # of what the promise leaves, so small a share of many classes may be missed: other kinds miss more

OPENED_PER_DEPTH = 100, 250, 500  # classes opened for each banned one, of which the first that loses little is taken
BANNED = 20, 50, 64  # of a row's own best classes: looks past more of them open all groups
BANNED_ROWS = 400
ASKED = 5  # of those that come next
LOSS_DIVISOR = 4  # of what the promise leaves, so small a share may be lost beside the widest look


def choose_widths(plan: GroupedPlan, truth: Truth, promise: float) -> GroupedSettings:
    """The plan's settings with widths of looks by which it keeps the promise. truth: of rows that it has not seen."""
    opened, candidates = choose_width_per_k(plan, truth, promise)
    plan = change_settings(plan, opened_per_k=opened, candidates_per_k=candidates)
    return change_settings(plan, opened_per_depth=choose_opened_per_depth(plan, truth, promise)).settings


def choose_width_per_k(plan: GroupedPlan, truth: Truth, promise: float) -> tuple[int, int]:
    """How many classes a first look opens, and has as candidates, for each of many classes that are asked for.

    The plan's own where a first look for few has more candidates than any width adds: widths could not be told apart.
    """
    k, settings = min(max(EFFORT_DEPTHS), truth.ids.shape[1], plan.order.size), plan.settings
    if WIDTHS_PER_K[-1][1] * k <= settings.candidates:
        return settings.opened_per_k, settings.candidates_per_k

    def measure_misses(opened: int, candidates: int) -> float:
        wider = change_settings(plan, opened_per_k=opened, candidates_per_k=candidates)
        first = list_looks(wider.settings, k, plan.order.size)[0]
        return float(measure_look(wider, first, truth, k).missed.mean())

    most = (1 - promise) / MISS_DIVISOR
    return next((width for width in WIDTHS_PER_K if measure_misses(*width) <= most), WIDTHS_PER_K[-1])


def choose_opened_per_depth(plan: GroupedPlan, truth: Truth, promise: float) -> int:
    """The least number of classes to open for each banned one with which the last look finds as much, or nearly."""
    truth = truth.take_every(-(-len(truth.contexts) // BANNED_ROWS))  # of all kinds of text
    depths = [banned for banned in BANNED if banned + ASKED <= min(truth.ids.shape[1], plan.order.size)]
    if not depths:
        return MOST_OPENED_PER_DEPTH

    def measure_misses(opened: int) -> DoubleArray:
        wider = change_settings(plan, opened_per_depth=opened)
        return np.array([find_banned_misses(wider, truth, banned) for banned in depths])

    most = measure_misses(MOST_OPENED_PER_DEPTH) + (1 - promise) / LOSS_DIVISOR
    return next(
        (opened for opened in OPENED_PER_DEPTH if (measure_misses(opened) <= most).all()), MOST_OPENED_PER_DEPTH
    )


def find_banned_misses(plan: GroupedPlan, truth: Truth, banned: int) -> float:
    """The share of the classes that follow the `banned` best ones that the last look for lists misses."""
    return float(measure_banned(plan, BannedRows(ASKED, banned, truth), LIST_LOOKS - 1).missed.mean())
