"""Draws by noise from logits that are there: of all classes, or of the k best."""

from __future__ import annotations

import numpy as np

from shortlist.core.bias import Bias
from shortlist.core.draws.noise import Words, make_noise
from shortlist.core.draws.sampling import Sampling
from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, DoubleArray, FloatArray, IdArray, PlanResult, empty_result

from .normalizer import log_sum_exp


def draw_from_distribution(
    logits: FloatArray, sampling: Sampling, class_filter: ClassFilter, bias: Bias | None = None
) -> PlanResult:
    """Draws [B, draws] from logits [B, V], to which biases are added; `scored` is V."""
    result = empty_result(len(logits), sampling.draws)
    result.scored.fill(logits.shape[1])
    keys = sampling.make_keys()
    for row, some in enumerate(logits):
        scores = add_bias(class_filter.restrict(some, row), bias, row) / sampling.temperatures[row]
        result.ids[row] = draw_classes(keep_nucleus(scores, sampling.top_p), np.arange(scores.size), keys[row])
        result.logits[row] = np.where(result.ids[row] < 0, np.float32(-np.inf), some[result.ids[row]])
        result.log_normalizer[row] = log_sum_exp(some.copy())
    return result


def add_bias(logits: FloatArray, bias: Bias | None, row: int) -> DoubleArray:
    """Logits [V] of a row with its biases, float64."""
    scores = logits.astype(np.float64)
    if bias is not None:
        ids, weights = (each[0 if len(bias) == 1 else row] for each in (bias.ids, bias.weights))
        scores[ids[ids >= 0]] += weights[ids >= 0]
    return scores


def draw_from_best(best: PlanResult, sampling: Sampling) -> PlanResult:
    """Draws [B, draws] from the k best classes of each row, by logits and weights together."""
    result = empty_result(len(best.ids), sampling.draws)
    result.log_normalizer[:], result.scored[:] = best.log_normalizer, best.scored
    keys = sampling.make_keys()
    for row, ids in enumerate(best.ids):
        order = np.argsort(ids)  # equal scores go to the lower id, as everywhere
        scores = best.logits[row, order].astype(np.float64)
        scores += 0 if best.weights is None else best.weights[row, order]
        tempered = keep_nucleus(scores / sampling.temperatures[row], sampling.top_p)
        result.ids[row] = draw_classes(tempered, ids[order], keys[row])
        logit_of = dict(zip(ids.tolist(), best.logits[row].tolist(), strict=True)) | {NO_CLASS: -np.inf}
        result.logits[row] = [logit_of[class_id] for class_id in result.ids[row].tolist()]
    return result


def keep_nucleus(scores: DoubleArray, share: float) -> DoubleArray:
    """Scores [n] with -inf for all but the fewest best whose probabilities among them reach `share`."""
    if share >= 1 or not scores.size:
        return scores
    order = np.argsort(-scores, kind="stable")
    if scores[order[0]] == -np.inf:
        return scores
    powers = np.exp(scores[order] - scores[order[0]])
    before = np.cumsum(powers) - powers
    kept = scores.copy()
    kept[order[before >= share * np.sum(powers)]] = -np.inf
    return kept


def draw_classes(scores: DoubleArray, ids: IdArray, keys: Words) -> IdArray:
    """The winners [draws] of score + noise among the ascending `ids` [n], one for each of `keys` [draws, 2].

    scores: [n], logits divided by the temperature, -inf for classes that are not drawn. -1 where there are none.
    """
    kept = (scores > -np.inf).nonzero()[0]
    if not kept.size:
        return np.full(len(keys), NO_CLASS)
    ids, scores = ids[kept], scores[kept]
    return np.array([ids[np.argmax(scores + make_noise(key, ids))] for key in keys])
