"""Loops over the rows of plan `screen`, compiled by numba: weights are read where they are mapped.

A graph has to slice a cluster's or expert's weights out of all, which copies them, and pays for each of its nodes.
Each step equals the graphs' operators, but for the order of float32 sums.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shortlist.core.results import NO_CLASS, FloatArray, IdArray
from shortlist.kernels.primitives.arrays import Ints
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.sums import SUM_FLAGS
from shortlist.kernels.unscored import TO_DENSE, TO_GRAPHS

LOWEST_SCORE = np.float32(-np.inf)
LOG2_OF_E = np.float32(1.4426950408889634)
SMALLEST_POWER = np.float32(-126)  # exponent of the smallest normal float32
ROUNDING_HALF = np.float32(0.5)
EXPONENT, MANTISSA = 127, 23  # the offset and the place of float32's exponent
EXP2_COEFFICIENTS = tuple(
    np.float32(np.log(2.0) ** i / f) for i, f in enumerate((1, 1, 2, 6, 24, 120, 720))
)  # 2**x, |x| <= 1/2

compile_sums = partial(compile_loop, fastmath=SUM_FLAGS)


@compile_sums
def add_columns(columns: FloatArray, factors: FloatArray, sums: FloatArray) -> None:
    """Add `factors` [m] times `columns` [m, n] to `sums` [n], four lines at a time."""
    whole = factors.size - factors.size % 4
    for i in range(0, whole, 4):
        a, b, c, d = factors[i], factors[i + 1], factors[i + 2], factors[i + 3]
        one, two, three, four = columns[i], columns[i + 1], columns[i + 2], columns[i + 3]
        for j in range(sums.size):
            sums[j] += a * one[j] + b * two[j] + c * three[j] + d * four[j]
    for i in range(whole, factors.size):
        factor, line = factors[i], columns[i]
        for j in range(sums.size):
            sums[j] += factor * line[j]


@compile_sums
def multiply_rows(rows: FloatArray, factors: FloatArray, sums: FloatArray) -> None:
    """Products of `rows` [n, m] and `factors` [m], into `sums` [n]."""
    for i in range(sums.size):
        total, row = np.float32(0), rows[i]
        for j in range(factors.size):
            total += row[j] * factors[j]
        sums[i] = total


@compile_sums
def sum_exp(scores: FloatArray, peak: np.float32) -> np.float32:
    """The sum of exp(scores - peak) [n], NaN where one is: powers of two by Taylor's polynomial, to 1e-6 of it.

    The exponential of a library is a call for each score, which no loop is vectorised over.
    """
    bits, fractions = np.empty(scores.size, np.int32), np.empty(scores.size, np.float32)
    for i in range(scores.size):
        power = (scores[i] - peak) * LOG2_OF_E
        power = SMALLEST_POWER if power < SMALLEST_POWER else power
        whole = np.int32(power - ROUNDING_HALF)
        x = power - np.float32(whole)
        high = EXP2_COEFFICIENTS[3] + x * (EXP2_COEFFICIENTS[4] + x * (EXP2_COEFFICIENTS[5] + x * EXP2_COEFFICIENTS[6]))
        fractions[i] = EXP2_COEFFICIENTS[0] + x * (EXP2_COEFFICIENTS[1] + x * (EXP2_COEFFICIENTS[2] + x * high))
        bits[i] = (whole + EXPONENT) << MANTISSA
    powers, total = bits.view(np.float32), np.float32(0)
    for i in range(scores.size):
        total += fractions[i] * powers[i]
    return total


@compile_loop
def finish_logits(logits: FloatArray, logit_scale: float, soft_cap: float) -> None:
    """Apply the logit scale and the soft-cap, 0 for none, to `logits` [n] in place."""
    if logit_scale != 1:
        for i in range(logits.size):
            logits[i] *= np.float32(logit_scale)
    if soft_cap > 0:
        cap = np.float32(soft_cap)
        for i in range(logits.size):
            logits[i] = cap * np.tanh(logits[i] / cap)


@compile_loop
def precedes(logit: np.float32, class_id: int, other: np.float32, other_id: int) -> bool:
    """Whether the first class comes before the other: the larger logit, of equal ones the lower id."""
    return bool(logit > other or (logit == other and class_id < other_id))


@compile_loop
def take_best(logits: FloatArray, ids: IdArray, best: FloatArray, best_ids: IdArray) -> None:
    """Insert the best of `logits` [n] of classes `ids` [n] into `best` and `best_ids` [k], which are best first."""
    last = best.size - 1
    for i in range(logits.size):
        if logits[i] >= best[last] and precedes(logits[i], ids[i], best[last], best_ids[last]):
            rank = last
            while rank > 0 and precedes(logits[i], ids[i], best[rank - 1], best_ids[rank - 1]):
                best[rank], best_ids[rank] = best[rank - 1], best_ids[rank - 1]
                rank -= 1
            best[rank], best_ids[rank] = logits[i], ids[i]


@compile_loop
def drop_known(known: IdArray, ids: IdArray, logits: FloatArray) -> int:
    """Set the `logits` [n] of those ascending `ids` [n] that are among the ascending `known` [m] to -inf.

    Returns how many of `ids` are not among them.
    """
    at, new = 0, 0
    for i in range(ids.size):
        while at < known.size and known[at] < ids[i]:
            at += 1
        if at < known.size and known[at] == ids[i]:
            logits[i] = LOWEST_SCORE
        else:
            new += 1
    return new


@compile_loop
def score_cluster(
    context: FloatArray, weights: FloatArray, lines: int, first: int, finishing: FloatArray, logits: FloatArray
) -> None:
    """Logits [n] of the classes from `first` on in sets.bin: `lines` [n] of each set, the last the biases if over d."""
    columns = weights[first * lines : (first + logits.size) * lines].reshape(lines, logits.size)
    if lines > context.size:
        logits[:] = columns[context.size]
    else:
        logits[:] = 0
    add_columns(columns, context, logits)
    finish_logits(logits, finishing[0], finishing[1])


@compile_loop
def find_two_best(scores: FloatArray) -> Any:
    """Places of the best and the second best of `scores` [r], of one score the same; the first of equal ones."""
    best, second = 0, -1
    for i in range(1, scores.size):
        if scores[i] > scores[best]:
            best, second = i, best
        elif second < 0 or scores[i] > scores[second]:
            second = i
    return best, max(second, 0)


@compile_loop
def order_rows(contexts: FloatArray, columns: FloatArray) -> Any:
    """Scores [B, n] of the sets by the weights `columns` [d, n], and the rows [B] in the order of their best sets.

    Rows of one set then follow one another and find its weights in the cache.
    """
    scores = np.zeros((len(contexts), columns.shape[1]), np.float32)
    best, ends = np.empty(len(contexts), np.int32), np.zeros(scores.shape[1] + 1, np.int32)
    for row in range(len(contexts)):
        add_columns(columns, contexts[row], scores[row])
        best[row], _ = find_two_best(scores[row])
        ends[best[row] + 1] += 1
    for i in range(1, ends.size):
        ends[i] += ends[i - 1]
    order = np.empty_like(best)
    for row in range(best.size):
        order[ends[best[row]]] = row
        ends[best[row]] += 1
    return scores, order


@compile_loop
def compute_margin(scores: FloatArray, best: int, other: int) -> float:
    """Difference of the two scores over the size of the best, in double precision; infinite for a single score."""
    if best == other:
        return np.inf
    size = abs(np.float64(scores[best]))
    return (np.float64(scores[best]) - np.float64(scores[other])) / (size if size > 0 else 1.0)


@compile_loop
def score_clusters(
    order: Ints,
    contexts: FloatArray,
    scores: FloatArray,
    weights: FloatArray,
    classes: IdArray,
    offsets: IdArray,
    tail: FloatArray,
    lines: int,
    finishing: FloatArray,
    probes: int,
    probe_margin: float,
    dense_margin: float,
    ids: IdArray,
    logits: FloatArray,
    normalizer: FloatArray,
    scored: Ints,
) -> None:
    """Score the rows in `order`, each over its one or two best clusters.

    contexts: [B, d]. scores: [B, r], by the screen. weights: sets.bin, flat. classes, offsets, tail: of the sets,
    as in index.safetensors. lines: numbers in `weights` for each class, d or d + 1. finishing: logit scale and
    soft-cap, 0 for none. probes, probe_margin, dense_margin: the plan's settings. ids, logits [B, k], normalizer,
    scored [B] are written; `scored` is TO_DENSE where the margin is under dense_margin, TO_GRAPHS where more than
    two clusters are opened.
    """
    for row in order:
        ids[row], logits[row] = NO_CLASS, LOWEST_SCORE
        context, (best, other) = contexts[row], find_two_best(scores[row])
        margin = compute_margin(scores[row], best, other)
        clusters = min(probes + (margin < probe_margin), offsets.size - 1)
        if margin < dense_margin or clusters > 2:
            scored[row] = TO_DENSE if margin < dense_margin else TO_GRAPHS
            continue
        first, second = offsets[best], offsets[other]
        size, more = offsets[best + 1] - first, offsets[other + 1] - second if clusters == 2 else 0
        products, new = np.empty(size + more, np.float32), 0
        best_ids, other_ids = classes[first : first + size], classes[second : second + more]
        score_cluster(context, weights, lines, first, finishing, products[:size])
        take_best(products[:size], best_ids, logits[row], ids[row])
        if more:
            score_cluster(context, weights, lines, second, finishing, products[size:])
            new = drop_known(best_ids, other_ids, products[size:])
            take_best(products[size:], other_ids, logits[row], ids[row])
        normalizer[row] = logits[row, 0] + np.log(sum_exp(products, logits[row, 0])) + tail[best]
        scored[row] = size + new


@compile_loop
def score_all_clusters(contexts: FloatArray, screen: FloatArray, *others: Any) -> None:
    """`score_clusters` for all rows, with scores by the weights `screen` [d, r]."""
    scores, order = order_rows(contexts, screen)
    score_clusters(order, contexts, scores, *others)


@compile_loop
def score_experts(
    order: Ints,
    contexts: FloatArray,
    scores: FloatArray,
    weights: FloatArray,
    classes: IdArray,
    offsets: IdArray,
    ids: IdArray,
    logits: FloatArray,
    normalizer: FloatArray,
    scored: Ints,
) -> None:
    """Score the rows in `order`, each over its best expert.

    contexts: [B, d]. scores: [B, K], by the gate. weights: sets.bin. classes, offsets: of the experts, as in
    index.safetensors. ids, logits [B, k], normalizer, scored [B] are written.
    """
    width = contexts.shape[1] + 1
    rows, factors = weights.reshape(classes.size, width), np.empty(width, np.float32)
    for row in order:
        ids[row], logits[row] = NO_CLASS, LOWEST_SCORE
        expert, _ = find_two_best(scores[row])
        scale = np.float32(1) / sum_exp(scores[row], scores[row, expert])
        for i in range(width - 1):
            factors[i] = contexts[row, i] * scale
        factors[width - 1] = scale
        first, last = offsets[expert], offsets[expert + 1]
        products = np.empty(last - first, np.float32)
        multiply_rows(rows[first:last], factors, products)
        take_best(products, classes[first:last], logits[row], ids[row])
        normalizer[row] = logits[row, 0] + np.log(sum_exp(products, logits[row, 0]))
        scored[row] = last - first


@compile_loop
def score_all_experts(contexts: FloatArray, gate: FloatArray, *others: Any) -> None:
    """`score_experts` for all rows, with scores by the weights `gate` [d, K]."""
    scores, order = order_rows(contexts, gate)
    score_experts(order, contexts, scores, *others)
