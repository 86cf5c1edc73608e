"""Log-normalisers: sums of exponentials, and what a call's exactly scored classes say about an estimated one.

The rule of all plans: the classes that one call scores exactly for a row are all in that row's one normaliser, so
that no log-probability is over 0 and those of one row add up to a probability of at most 1. Two calls that score the
same classes of a row exactly have the same normaliser; others differ by the ratio of their normalisers alone.
"""

from __future__ import annotations

from math import isfinite, log

import numpy as np

from shortlist.core.results import FloatArray, IdArray, PlanResult, TopK
from shortlist.errors import BadInput

LEAST_SHARE = 1e-5  # of a sum of exponentials, that float32 can tell


def log_sum_exp(logits: FloatArray) -> np.float32:
    """Log of the sum of exp(logits) [V], float32, -inf of none; NaN or infinite where a logit is. Overwrites them."""
    peak = logits.max(initial=-np.inf)
    if peak == -np.inf:
        return np.float32(-np.inf)
    with np.errstate(over="ignore", invalid="ignore"):  # the caller refuses what overflows
        np.subtract(logits, peak, out=logits)
        np.exp(logits, out=logits)
        return np.float32(peak + np.log(logits.sum()))


def limit_rest(best: FloatArray, inside: np.float32, counted: int, classes: int) -> np.float32:
    """What the log-sum of other classes can be at most where `counted` candidates, not all, are the best of `classes`.

    best: logits [e] of the best of them. inside: the log-sum of all `counted`. Each other class has at most the mean of
    the candidates beyond `best`, or the least of these where there are no more.
    """
    if best.size == counted:
        return np.float32(best.min() + log(classes - counted))
    with np.errstate(invalid="ignore"):  # the caller refuses what overflows
        share = np.exp(best.astype(np.float64) - inside).sum()
    return limit_by_mean(share, best.size, inside, counted, classes)


def limit_by_mean(share: float, count: int, inside: np.float32, counted: int, classes: int) -> np.float32:
    """The same where the best `count` of `counted` candidates, not all, hold this share of their sum."""
    return np.float32(inside + log(max(1 - share, LEAST_SHARE) * (classes - counted) / (counted - count)))


def cover_classes(log_normalizer: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
    """Raise each row's log-normaliser [B] to what its exactly scored classes add up to; returns [B] float32.

    ids: [B, m], the exactly scored classes of each row; -1 pads, and a class that stands there twice counts once.
    logits: [B, m] float32. An estimated normaliser is a sum over classes it has scores of and a guess of the rest:
    where the classes given add up to more, the guess had missed some of them, and they take its place.
    """
    if ids.shape[1] == 1:  # the sum of one
        return np.maximum(log_normalizer, np.where(ids[:, 0] < 0, np.float32(-np.inf), logits[:, 0]))
    order = np.argsort(ids, axis=1, kind="stable")
    sorted_ids, distinct = np.take_along_axis(ids, order, axis=1), np.take_along_axis(logits, order, axis=1)
    repeated = sorted_ids < 0
    repeated[:, 1:] |= sorted_ids[:, 1:] == sorted_ids[:, :-1]
    distinct[repeated] = -np.inf
    peak = distinct.max(axis=1, keepdims=True, initial=-np.inf)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # the caller refuses what overflows
        exponentials = np.exp(np.where(peak == -np.inf, -np.inf, distinct - peak))
        covered: FloatArray = peak[:, 0] + np.log(exponentials.sum(axis=1))
    return np.maximum(log_normalizer, covered)


def cover_also(result: PlanResult, ids: IdArray, logits: FloatArray) -> FloatArray:
    """The log-normalisers [B] of `result` raised to what its classes and `ids` [B, m] of `logits` [B, m] add up to."""
    all_ids, all_logits = np.concatenate([result.ids, ids], axis=1), np.concatenate([result.logits, logits], axis=1)
    return cover_classes(result.log_normalizer, all_ids, all_logits)


def make_topk(result: PlanResult, normalizer: str) -> TopK:
    """A plan's result as log-probabilities; raises BadInput where float32 cannot hold its scores."""
    log_normalizer = result.log_normalizer
    if log_normalizer.size != 1 or not isfinite(log_normalizer.item()):  # of one row this is faster
        check_overflow(np.abs(log_normalizer))  # -inf too: then all scores of a row overflowed to it
    return result.topk(normalizer)


def make_scored_topk(result: PlanResult, normalizer: str) -> TopK:
    """As `make_topk`, with the scores that log-probabilities are normalised from."""
    top = make_topk(result, normalizer)
    top.scores = result.logits
    return top


def check_overflow(scores: FloatArray, start: int = 0) -> None:
    """Raise BadInput at the first row whose log-normaliser or largest logit, in `scores` [B], is NaN or infinite.

    start: the number of the first row in its request.
    """
    most = scores[0] if scores.size == 1 else scores.max(initial=-np.inf)
    if not most < np.inf:  # false for NaN too, which max() hands on
        row = start + np.flatnonzero(~(scores < np.inf))[0]
        raise BadInput(f"contexts row {row} is so large that its scores overflow float32: scale it down")
