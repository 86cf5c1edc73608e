"""Effort by the row where lists restrict it: how likely the last look misses some of the best permitted classes.

What a look tells of a row means something else where the row's own best classes are forbidden: those left differ by
less than previews tell. So the regression of `effort` is fitted once more, to calibration contexts with lists of many
kinds that are made up for them, by the ranks that classes have in a row and by their likeness to each other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from shortlist.bundle.settings import LIST_LOOKS
from shortlist.core.filters import ClassFilter
from shortlist.core.results import FloatArray, IdArray
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, list_looks
from shortlist.kernels.lists import MOST_LISTED
from shortlist.plans.grouped.plan import SURE_MISS, GroupedPlan
from shortlist_models.full import FullSoftmax
from shortlist_models.products import multiply_rows

from .effort import EFFORT_DEPTHS, NEVER_ENOUGH, UNWEIGHTED, Outcomes, Weights, fit_looks

LIST_ROWS = 200  # contexts, each with a list of every kind
RANKED_ROWS = 8  # of which all classes are ranked at once
MAX_LIST_LOGITS = 1 << 25  # of all of them: fewer contexts of layers of millions of classes
MIN_PERMITTED = MOST_LISTED + 1  # a search scores all of fewer permitted classes

Random = np.random.Generator


class RankedRow(NamedTuple):
    """A context [1, d] with all classes in three orders [V].

    order: by their logits. like_any, like_best: by their likeness to any class, and to the best one.
    """

    context: FloatArray
    order: IdArray
    like_any: IdArray
    like_best: IdArray


def draw_size(random: Random, least: int, most: int) -> int:
    """A number of classes from `least` to `most`, whose logarithm is uniform."""
    return int(np.exp(random.uniform(np.log(least), np.log(max(most, least + 1)))))


def permit_some(row: RankedRow, random: Random) -> IdArray:
    """Any classes."""
    return random.permutation(row.order)[: draw_size(random, MIN_PERMITTED, row.order.size // 2)]


def permit_window(row: RankedRow, random: Random) -> IdArray:
    """Classes of neighbouring ranks, without the best."""
    first = draw_size(random, 5, row.order.size // 2)
    return row.order[first : first + draw_size(random, MIN_PERMITTED, row.order.size)]


def permit_category(row: RankedRow, random: Random) -> IdArray:
    """Classes that are like each other."""
    return row.like_any[: draw_size(random, MIN_PERMITTED, row.order.size // 2)]


def permit_other_category(row: RankedRow, random: Random) -> IdArray:
    """Classes that are least like the row's best one."""
    return row.like_best[::-1][: draw_size(random, MIN_PERMITTED, row.order.size // 2)]


def forbid_best(row: RankedRow, random: Random) -> IdArray:
    """All but the row's own best classes, up to an eighth of all."""
    return row.order[draw_size(random, 1, row.order.size // 8) :]


def forbid_category(row: RankedRow, random: Random) -> IdArray:
    """All but classes that are like the row's best one."""
    return row.like_best[draw_size(random, 10, row.order.size // 4) :]


LISTS: tuple[Callable[[RankedRow, Random], IdArray], ...] = (
    permit_some, permit_window, permit_category, permit_other_category, forbid_best, forbid_category,
)  # fmt: skip


def fit_list_effort(plan: GroupedPlan, dense: FullSoftmax, contexts: FloatArray, seed: int) -> Weights:
    """The weights of the last look of rows with lists; none for a head of few classes.

    contexts: [n, d], which the head was not fitted on. dense: the layer that it was fitted to.
    """
    classes = plan.order.size
    if classes < MIN_PERMITTED:
        return ()
    random = np.random.default_rng(seed)
    count = min(LIST_ROWS, len(contexts), max(1, MAX_LIST_LOGITS // classes))
    rows = contexts[np.sort(random.choice(len(contexts), count, replace=False))]
    parts = np.split(rows, range(RANKED_ROWS, count, RANKED_ROWS))
    ranked = (row for part in parts for row in rank_classes(plan, dense, part, random))
    depths = [k for k in EFFORT_DEPTHS if k <= plan.max_k]
    outcomes = (
        search_permitted(plan, row, make_list(row, random), int(random.choice(depths)))
        for row in ranked
        for make_list in LISTS
    )
    return fit_looks([outcome for outcome in outcomes if outcome is not None])


@torch.no_grad()
def rank_classes(plan: GroupedPlan, dense: FullSoftmax, contexts: FloatArray, random: Random) -> list[RankedRow]:
    """Every context of [n, d] with the orders of its classes."""
    orders = sort_classes(plan, dense.logits(torch.from_numpy(contexts)))
    like_any, like_best = (
        sort_classes(plan, multiply_rows(dense.weight[torch.from_numpy(like)], dense.weight))
        for like in (random.choice(plan.order, len(contexts)), orders[:, 0])
    )
    ranks = zip(contexts[:, None], orders, like_any, like_best, strict=True)
    return [RankedRow(*row) for row in ranks]


def sort_classes(plan: GroupedPlan, scores: torch.Tensor) -> IdArray:
    """The plan's m classes by scores [n, V], largest first: [n, m]."""
    order: IdArray = scores.argsort(dim=1, descending=True, stable=True).numpy()
    return order[np.isin(order, plan.order)].reshape(len(order), -1) if plan.order.size < order.shape[1] else order


def search_permitted(plan: GroupedPlan, row: RankedRow, permitted: IdArray, k: int) -> Outcomes | None:
    """What the last look finds of the k best permitted classes; None where it would score all, or be left out."""
    assert plan.compiled is not None, "graphs take no looks"
    if permitted.size < MIN_PERMITTED:
        return None
    features = np.zeros((1, EFFORT_FEATURES), np.float32)
    looks = list_looks(plan.settings, k, plan.order.size)[:LIST_LOOKS]
    unweighted = (UNWEIGHTED,) * len(looks)
    search = plan.prepare_search(k)(looks, weights=unweighted, bar=NEVER_ENOUGH, most_listed=MOST_LISTED)
    result = plan.compiled(row.context, search, ClassFilter(permitted[None]), features)
    assert result.risk is not None
    if result.risk[0] > SURE_MISS:
        return None
    is_permitted = np.zeros(plan.classes, bool)
    is_permitted[permitted] = True
    best = row.order[is_permitted[row.order]][:k]
    return Outcomes(features.astype(np.float64), np.array([1 - np.isin(best, result.ids[0]).mean()]))
