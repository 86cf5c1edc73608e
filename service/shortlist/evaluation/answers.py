"""Answers that were given, held against exact ones: which of the best classes they held, and how far they were off.

`evaluator` measures a head by its plan on contexts of the user's; here the answers exist already. Their classes and the
exact ones are scored by one runtime, and equal scores, also those that rounding alone tells apart, are no misses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import NO_CLASS, DoubleArray, FloatArray, IdArray
from shortlist.core.rounding import UNIT_ROUNDOFF
from shortlist.head import Head

from .ranking import rank_scores
from .statistics import mark_hits

TIE_ROUNDOFFS = 16  # of the largest score of a row: scores that differ by less are equal


@dataclass(frozen=True)
class AnswerFigures:
    """Figures of b answers of at least k classes. By k: hits [b], the share of the k best that were answered, and lost.

    lost: [b], the exact probability of the k best that were not answered. error: [b], nats, the mean |error| of the
    log-probabilities that were answered, and the largest.
    """

    hits: dict[int, DoubleArray]
    lost: dict[int, DoubleArray]
    mean_error: DoubleArray
    max_error: DoubleArray


def judge_answers(
    head: Head, contexts: FloatArray, ids: IdArray, logprobs: FloatArray, depths: Sequence[int]
) -> AnswerFigures:
    """Hold answers without lists and biases against `head`'s exact ones: proved, by dense, or its own distribution.

    contexts: [b, d], b >= 1. ids, logprobs: [b, m], best first, as they were answered. depths: each k at which they are
    judged, m at most. Raises BadInput where the head has no exact answers.
    """
    count = ids.shape[1]
    plan, _ = head.choose_plan(len(contexts), count, exact=True)
    exact = head.run(plan, contexts, count, UNRESTRICTED)
    both = np.concatenate([exact.ids, ids], axis=1)
    scores = head.compute_logits(plan, contexts, np.maximum(both, 0)).astype(np.float64)
    scores[both == NO_CLASS] = -np.inf
    exact_logprobs = scores - exact.log_normalizer[:, None]
    error = measure_errors(logprobs, exact_logprobs[:, count:], ids)
    true, best = rank_scores(*sort_distinct(both, join_equal(scores), count))
    probabilities = np.exp(best - exact.log_normalizer[:, None])
    hits = {k: mark_hits(ids, true, k) for k in depths}
    lost = {k: (probabilities[:, :k] * ~marks).sum(axis=1) for k, marks in hits.items()}
    return AnswerFigures(
        {k: marks.mean(axis=1) for k, marks in hits.items()}, lost, error.mean(axis=1), error.max(axis=1)
    )


def measure_errors(logprobs: FloatArray, exact_logprobs: DoubleArray, ids: IdArray) -> DoubleArray:
    """[b, m]: |error| of log-probabilities, nats; 0 beside an id of -1."""
    with np.errstate(invalid="ignore"):  # -inf beside -1
        return np.where(ids == NO_CLASS, 0.0, np.abs(logprobs - exact_logprobs))


def join_equal(scores: DoubleArray) -> DoubleArray:
    """`scores` [b, m] in which those that rounding alone may tell apart have the larger one's value."""
    order = np.argsort(-scores, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    slack = TIE_ROUNDOFFS * UNIT_ROUNDOFF * np.abs(ranked[:, 0])
    for place in range(1, ranked.shape[1]):
        near = ranked[:, place] >= ranked[:, place - 1] - slack
        ranked[near, place] = ranked[near, place - 1]
    joined = np.empty_like(scores)
    np.put_along_axis(joined, order, ranked, axis=1)
    return joined


def sort_distinct(ids: IdArray, scores: DoubleArray, count: int) -> tuple[DoubleArray, int, IdArray]:
    """The arguments by which `rank_scores` ranks the `count` best of `ids` [b, m], in which a class may stand twice."""
    order = np.argsort(ids, axis=1, kind="stable")
    classes, values = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    values[:, 1:][classes[:, 1:] == classes[:, :-1]] = -np.inf
    return values, count, classes
