"""The top k of logits and biases together, out of any plan's top k and the exact logits of the biased classes.

Why that is right: let A be the plan's k best of the permitted classes that have no bias, and C the
permitted classes with a bias. A class of the true top k is in C, or it has no bias; in the second case fewer than k
classes without a bias are before it, so that it is in A. So the k best of A and C together, by logit and weight, equal
logits by lower id, are the true ones, as far as A is: with a plan that is exact, exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shortlist.core.bias import Bias
from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, FloatArray, IdArray, PlanResult

from .normalizer import check_overflow, cover_also


def search_biased(
    search: Callable[[ClassFilter], PlanResult],
    score: Callable[[IdArray], FloatArray],
    class_filter: ClassFilter,
    bias: Bias,
    classes: int,
) -> PlanResult:
    """The k best of B rows by logit and weight together.

    search: gives the k best that a filter permits, by logit. score: gives exact logits [B, m] of the ids [B, m].
    classes: V. Raises BadInput where logits overflow.
    """
    rest = search(class_filter.hide(bias.ids))
    rows = len(rest.ids)
    if not rows:
        return rest
    logits = score(np.maximum(np.broadcast_to(bias.ids, (rows, bias.ids.shape[1])), 0))
    check_overflow(logits.max(axis=1))
    return merge_biased(rest, bias, logits, find_candidates(class_filter, bias, rows), classes)


def find_candidates(class_filter: ClassFilter, bias: Bias, rows: int) -> npt.NDArray[np.bool_]:
    """[rows, m]: which of the biased classes may be returned; none for a row whose class is forced."""
    ids = np.broadcast_to(bias.ids, (rows, bias.ids.shape[1]))
    candidates = ids >= 0
    if class_filter.restricts:
        for row in range(rows):
            candidates[row] &= not class_filter.is_forced(row) and class_filter.mask(ids[row], row)
    return candidates


def merge_biased(
    rest: PlanResult, bias: Bias, logits: FloatArray, candidates: npt.NDArray[np.bool_], classes: int
) -> PlanResult:
    """The k best of `rest` [B, k], which has no biased classes, and of the biased `candidates` [B, m].

    logits: [B, m] float32, of the biased classes, without their weights. classes: V.
    """
    k = rest.ids.shape[1]
    log_normalizer = cover_also(rest, np.broadcast_to(bias.ids, logits.shape), logits)
    usable = candidates & (logits > -np.inf)  # padding of the vocabulary has no logit
    ids = np.concatenate([rest.ids, np.where(usable, bias.ids, NO_CLASS)], axis=1)
    all_logits = np.concatenate([rest.logits, np.where(usable, logits, np.float32(-np.inf))], axis=1)
    weights = np.concatenate([np.zeros(rest.ids.shape, np.float32), np.where(usable, bias.weights, 0)], axis=1)
    order = rank_by_weighted_logits(ids, all_logits, weights)[:, :k]
    scored = np.minimum(rest.scored + (bias.ids >= 0).sum(axis=1), classes).astype(np.int32)
    return PlanResult(
        np.take_along_axis(ids, order, axis=1),
        np.take_along_axis(all_logits, order, axis=1),
        log_normalizer,
        scored,
        np.take_along_axis(weights, order, axis=1),
        rest.risk,
    )


def rank_by_weighted_logits(ids: IdArray, logits: FloatArray, weights: FloatArray) -> npt.NDArray[np.intp]:
    """Places [B, n] of the classes of each row, by falling logit and weight together; equal ones by lower id."""
    keys = logits.astype(np.float64) + weights
    order: npt.NDArray[np.intp] = np.lexsort((ids, -keys), axis=1)
    return order
