"""Merging the results of several clusters for one row, and those of several groups of rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shortlist.core.results import FloatArray, IdArray, PlanResult, empty_result
from shortlist.kernels.unscored import TO_DENSE
from shortlist.plans.common.base import take_best
from shortlist.plans.common.normalizer import log_sum_exp

from .sets import Mask


class RowGroup(NamedTuple):
    """Some rows [b] of a call, and their results."""

    rows: list[int]
    result: PlanResult


def scatter(groups: list[RowGroup], rows: int, k: int) -> PlanResult:
    """The results of all `rows` rows of a call for k classes; TO_DENSE for rows that are in no group.

    No row is in two groups, and each group's rows ascend.
    """
    if len(groups) == 1 and len(groups[0].rows) == rows:
        return groups[0].result
    result = make_unscored(rows, k, TO_DENSE)
    if groups:
        places = np.array([row for group in groups for row in group.rows])
        result.put(places, PlanResult.concat([group.result for group in groups]))
    return result


def make_unscored(rows: int, k: int, verdict: int) -> PlanResult:
    """Make the result of rows without an answer: `scored` is the verdict, TO_DENSE or TO_GRAPHS; else undefined."""
    result = empty_result(rows, k)
    result.scored[:] = verdict
    return result


def rank_row(logits: FloatArray, ids: IdArray, k: int, normalized: FloatArray, tail: np.float32) -> PlanResult:
    """A single row's k best of classes `ids` [n], ascending, with exact `logits` [n].

    normalized: [m], the logits that enter the normaliser, overwritten; may be `logits` themselves. tail: nats added to
    their log-sum-exp to make up for all other classes.
    """
    best_ids, best = take_best(logits, ids, k)
    log_normalizer = np.array([log_sum_exp(normalized) + tail], np.float32)
    return PlanResult(best_ids[None], best[None], log_normalizer, np.array([ids.size], np.int32))


class SecondCluster(NamedTuple):
    """What a second cluster's graph gives for a single row.

    ids, top: [k], its k best classes, best first, and their logits. new_top: [k], which of them the first cluster has
    not. new_logits: [n], of all such classes.
    """

    ids: IdArray
    top: FloatArray
    new_top: Mask
    new_logits: FloatArray


def merge_second(first: PlanResult, second: SecondCluster, tail: np.float32, classes: int) -> PlanResult:
    """The result of a single row over two clusters, from that over the best one.

    tail: nats that the first's normaliser has for the classes outside it; none is where both hold all `classes`.
    Overwrites `second.new_logits`.
    """
    if second.new_logits.size == 0:
        return first
    ids = np.concatenate([first.ids[0], second.ids[second.new_top]])
    logits = np.concatenate([first.logits[0], second.top[second.new_top]])
    order = np.lexsort((ids, -logits))[: first.ids.shape[1]]
    scored = first.scored + np.int32(second.new_logits.size)
    log_normalizer = np.logaddexp(first.log_normalizer - tail, log_sum_exp(second.new_logits))
    log_normalizer += np.where(scored < classes, tail, np.float32(0))
    return PlanResult(ids[None, order], logits[None, order], log_normalizer, scored)
