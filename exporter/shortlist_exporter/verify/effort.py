"""Effort by the row: how likely each look of a search has missed some of a row's best classes, by what others missed.

Learned stopping (Li et al. 2020, "Improving approximate nearest neighbor search through learned adaptive early
termination"), by one logistic regression for each look: of the share of the k best classes that it missed, on what the
loops tell of the row (`describe_look` in native/grouped/effort.h): how far it searched, how logits fall off, and how
wrong the previews of the best classes were. Contexts are ones that the head was not fitted on, but of the kinds of text
that it was fitted on; some are perturbed (`perturbation`), since rows of other kinds miss more often, and what is left
of that is `NEW_KIND_LOG_ODDS`. Sizes of the context count in proportion to each other alone: the best classes of a
context twice as long are the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import DoubleArray
from shortlist.evaluation.statistics import mark_hits
from shortlist.evaluation.truth import Truth
from shortlist.kernels.grouped.effort import EFFORT_FEATURES, MOST_RAISED_K, SIZE_FEATURES, Look, Search, list_looks
from shortlist.plans.grouped.plan import GroupedPlan

EFFORT_DEPTHS = (1, 2, 5, 10, 20, 50, 100)  # k of the searches that the regression sees
NARROW_WIDTHS = {"opened_per_k": 200, "candidates_per_k": 3}  # of looks that stand for those at rows with bans
WIDEST_LOOK_ROWS = 2_000  # that the widest look is fitted to at most: it takes several times as long as the others
MAX_WIDEST_OPENED = 100_000_000  # classes that it opens at all of them: fewer rows of larger layers
UNWEIGHTED = (0.0,) * (EFFORT_FEATURES + 1)  # of a look: log-odds of 0 after it
NEVER_ENOUGH = -1.0  # log-odds under which no look is then enough
RIDGE = 0.5  # of the weights of normalised features
MAX_STEPS = 100
LEAST_STEP = 1e-9  # of any weight, below which steps end
LEAST_GAIN = 1e-9  # nats that rounding may hide
# Added to every estimate: without it thirty kinds of text miss .9 of what is stated in the geometric mean, some twice
# as much, and one of a layer with few calibration rows 2.4 times (docs/log/looks.md).
NEW_KIND_LOG_ODDS = 0.1

Weights = tuple[float, ...]


class Outcomes(NamedTuple):
    """What looks at n rows gave. features: [n, EFFORT_FEATURES]. missed: [n], shares of the k best classes."""

    features: DoubleArray
    missed: DoubleArray


def fit_efforts(plan: GroupedPlan, truths: Sequence[Truth]) -> dict[str, tuple[Weights, ...]]:
    """The weights of every look where few classes are asked for, and many: settings of the plan by their names.

    Those for few are fitted to searches for many, too, by looks that are hardly wider: bans in front of a row's best
    ask for as many. truths: each of rows that the head has not seen.
    """
    most = min(plan.max_k, plan.order.size, *(truth.ids.shape[1] for truth in truths))
    depths = [k for k in EFFORT_DEPTHS if k <= most]
    many = [k for k in depths if k > MOST_RAISED_K]
    narrow = change_settings(plan, **NARROW_WIDTHS)
    return {
        "effort": fit_effort(narrow, truths, depths, whole=False),
        "wide_effort": fit_effort(plan, truths, many, whole=True) if many else (),
    }


def fit_effort(plan: GroupedPlan, truths: Sequence[Truth], depths: list[int], *, whole: bool) -> tuple[Weights, ...]:
    """The weights of every look, fitted to searches for each of `depths` classes; those of the widest to some rows.

    whole: whether looks that open all classes count, which tell of other rows what a look at a part does not.
    """
    looks = {k: list_looks(plan.settings, k, plan.order.size) for k in depths}
    most = min(WIDEST_LOOK_ROWS, max(1, MAX_WIDEST_OPENED // max(looks[k][-1].opened for k in depths)))
    step = -(-sum(len(truth.contexts) for truth in truths) // most)
    some = [truth.take_every(step) for truth in truths]  # of all kinds of text
    weights = []
    for number, parts in enumerate((truths, truths, some)):
        some_depths = [k for k in depths if whole or looks[k][number].opened < plan.order.size] or depths
        outcomes = [measure_look(plan, looks[k][number], rows, k) for rows in parts for k in some_depths]
        weights.append(raise_estimate(fit_looks(outcomes), NEW_KIND_LOG_ODDS))
    return tuple(weights)


def change_settings(plan: GroupedPlan, **changes: float | None) -> GroupedPlan:
    """The plan with other settings."""
    return plan.with_settings(plan.settings.model_copy(update=changes))


def raise_estimate(weights: Weights, log_odds: float) -> Weights:
    """The weights of a regression that states exp(`log_odds`) times the odds."""
    return (*weights[:-1], weights[-1] + log_odds)


def measure_look(plan: GroupedPlan, look: Look, truth: Truth, k: int) -> Outcomes:
    """What one look gives for every row of `truth`, alone."""
    assert plan.compiled is not None, "graphs take no looks"
    features = np.zeros((len(truth.contexts), EFFORT_FEATURES), np.float32)
    search = Search((look,), k, plan.tail_candidates, (UNWEIGHTED,))
    ids = plan.compiled(truth.contexts, search, UNRESTRICTED, features).ids
    return Outcomes(features.astype(np.float64), 1 - mark_hits(ids, truth.best, k).mean(axis=1))


def fit_looks(outcomes: list[Outcomes]) -> Weights:
    """As `fit_regression`, where the weights of `SIZE_FEATURES` add up to 0: a context's length alone tells nothing."""
    first, *others = SIZE_FEATURES
    weights = list(fit_regression([Outcomes(compare_sizes(one.features), one.missed) for one in outcomes]))
    weights.insert(first, 0.0)
    weights[first] = -sum(weights[size] for size in others)
    return tuple(weights)


def compare_sizes(features: DoubleArray) -> DoubleArray:
    """The features [n, EFFORT_FEATURES] without the first size, which is taken from the others: [n, one less]."""
    first, *others = SIZE_FEATURES
    features = features.copy()
    features[:, others] -= features[:, [first]]
    return np.delete(features, first, axis=1)


def fit_regression(outcomes: list[Outcomes]) -> Weights:
    """The weights of the features and a constant, by maximum likelihood with a ridge, features being normalised."""
    features = np.concatenate([outcome.features for outcome in outcomes])
    missed = np.concatenate([outcome.missed for outcome in outcomes])
    mean, size = features.mean(axis=0), features.std(axis=0) + 1e-6
    weights = find_likeliest(np.column_stack([(features - mean) / size, np.ones(len(features))]), missed)
    scaled = weights[:-1] / size
    return (*(float(weight) for weight in scaled), float(weights[-1] - scaled @ mean))


def find_likeliest(inputs: DoubleArray, missed: DoubleArray) -> DoubleArray:
    """The weights of `inputs` [n, m] under which `missed` [n] is likeliest, by Newton's steps."""
    weights = np.zeros(inputs.shape[1])
    for _ in range(MAX_STEPS):
        odds = inputs @ weights
        shares = np.exp(-np.logaddexp(0, -odds))
        slope = inputs.T @ (shares - missed) + 2 * RIDGE * weights
        curvature = (inputs.T * (shares * (1 - shares))) @ inputs + 2 * RIDGE * np.eye(len(weights))
        step, most = np.linalg.solve(curvature, slope), measure_loss(inputs, missed, weights) + LEAST_GAIN
        while measure_loss(inputs, missed, weights - step) > most:
            step /= 2
        weights = weights - step
        if np.abs(step).max() < LEAST_STEP:
            break
    return weights


def measure_loss(inputs: DoubleArray, missed: DoubleArray, weights: DoubleArray) -> float:
    """The negative log-likelihood of `missed` under `weights`, with the ridge."""
    odds = inputs @ weights
    return float((np.logaddexp(0, odds) - missed * odds).sum() + RIDGE * weights @ weights)
