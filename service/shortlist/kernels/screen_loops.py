"""Compiled loops over the rows of plan `screen`, by numba: weights are read where they are mapped.

A graph has to slice a cluster's or expert's weights out of all, which copies them, and each of its nodes costs time.
Each step equals the graphs' operators, but for the order of float32 sums.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shortlist.core.results import NO_CLASS, FloatArray, IdArray
from shortlist.kernels.primitives.arrays import Ints
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.select import LOWEST_SCORE
from shortlist.kernels.primitives.sums import SUM_FLAGS

LOG2_E = np.float32(1.4426950408889634)
MIN_EXPONENT = np.float32(-126)  # of the powers of two that are normal float32 numbers
HALF = np.float32(0.5)
EXPONENT_BIAS, MANTISSA_BITS = 127, 23  # of float32: what its exponent field adds, and where that begins
EXP2_TERMS = tuple(
    np.float32(np.log(2.0) ** i / f) for i, f in enumerate((1, 1, 2, 6, 24, 120, 720))
)  # of 2**x, for |x| <= 1/2

TO_DENSE, UNSCORED = -1, 0  # in place of the number of classes scored: the row is left to dense, or to the graphs

compile_sums = partial(compile_loop, fastmath=SUM_FLAGS)


@compile_sums
def add_columns(columns: FloatArray, factors: FloatArray, sums: FloatArray) -> None:
    """Add `factors` [m] times `columns` [m, n] to `sums` [n], four rows of `columns` at a time."""
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
    """Write the products of `rows` [n, m] and `factors` [m] to `sums` [n]."""
    for i in range(sums.size):
        total, row = np.float32(0), rows[i]
        for j in range(factors.size):
            total += row[j] * factors[j]
        sums[i] = total


@compile_sums
def sum_exp(scores: FloatArray, peak: np.float32) -> np.float32:
    """Return the sum of exp(scores - peak) over scores [n], to a relative 1e-6; NaN if a score is.

    Powers of two are computed by a Taylor polynomial, since a library's exponential is a call that is not vectorised.
    """
    bits, fractions = np.empty(scores.size, np.int32), np.empty(scores.size, np.float32)
    for i in range(scores.size):
        power = (scores[i] - peak) * LOG2_E
        power = MIN_EXPONENT if power < MIN_EXPONENT else power
        whole = np.int32(power - HALF)
        x = power - np.float32(whole)
        high = EXP2_TERMS[3] + x * (EXP2_TERMS[4] + x * (EXP2_TERMS[5] + x * EXP2_TERMS[6]))
        fractions[i] = EXP2_TERMS[0] + x * (EXP2_TERMS[1] + x * (EXP2_TERMS[2] + x * high))
        bits[i] = (whole + EXPONENT_BIAS) << MANTISSA_BITS
    powers, total = bits.view(np.float32), np.float32(0)
    for i in range(scores.size):
        total += fractions[i] * powers[i]
    return total


@compile_loop
def finish_logits(logits: FloatArray, logit_scale: float, soft_cap: float) -> None:
    """Apply logit scale and soft-cap (0 for none) to logits [n], in place."""
    if logit_scale != 1:
        for i in range(logits.size):
            logits[i] *= np.float32(logit_scale)
    if soft_cap > 0:
        cap = np.float32(soft_cap)
        for i in range(logits.size):
            logits[i] = cap * np.tanh(logits[i] / cap)


@compile_loop
def precedes(logit: np.float32, class_id: int, other: np.float32, other_id: int) -> bool:
    """True if a class comes before another: its logit is larger, or equal and its id lower."""
    return bool(logit > other or (logit == other and class_id < other_id))


@compile_loop
def merge_best(logits: FloatArray, ids: IdArray, best: FloatArray, best_ids: IdArray) -> None:
    """Merge `logits` [n] of classes `ids` [n] into the k best so far, which are in order, best first."""
    last = best.size - 1
    for i in range(logits.size):
        if logits[i] >= best[last] and precedes(logits[i], ids[i], best[last], best_ids[last]):
            rank = last
            while rank > 0 and precedes(logits[i], ids[i], best[rank - 1], best_ids[rank - 1]):
                best[rank], best_ids[rank] = best[rank - 1], best_ids[rank - 1]
                rank -= 1
            best[rank], best_ids[rank] = logits[i], ids[i]


@compile_loop
def drop_repeated(others: IdArray, ids: IdArray, logits: FloatArray) -> int:
    """Set `logits` [n] of ascending `ids` [n] to -inf where `others` [m], ascending, has them; counts the rest."""
    at, new = 0, 0
    for i in range(ids.size):
        while at < others.size and others[at] < ids[i]:
            at += 1
        if at < others.size and others[at] == ids[i]:
            logits[i] = LOWEST_SCORE
        else:
            new += 1
    return new


@compile_loop
def score_cluster(
    context: FloatArray, weights: FloatArray, lines: int, first: int, finishing: FloatArray, logits: FloatArray
) -> None:
    """Write `logits` [n] of one cluster, whose classes begin at `first` among those of all clusters.

    weights: sets.bin, for each cluster `lines` rows of n numbers: d rows of weights, and one of biases if lines > d.
    finishing [2]: logit scale and soft-cap (0 for none).
    """
    columns = weights[first * lines : (first + logits.size) * lines].reshape(lines, logits.size)
    if lines > context.size:
        logits[:] = columns[context.size]
    else:
        logits[:] = 0
    add_columns(columns, context, logits)
    finish_logits(logits, finishing[0], finishing[1])


@compile_loop
def find_two_best(scores: FloatArray) -> Any:
    """Return where the best and the second best of `scores` [r] are, the first of equal ones; of one score, 0 twice."""
    best, second = 0, -1
    for i in range(1, scores.size):
        if scores[i] > scores[best]:
            best, second = i, best
        elif second < 0 or scores[i] > scores[second]:
            second = i
    return best, max(second, 0)


@compile_loop
def choose_sets(contexts: FloatArray, columns: FloatArray) -> Any:
    """Return scores [B, n] of sets by the chooser's `columns` [d, n], and the rows [B] in the order of their best sets.

    In that order, the later of two rows often finds a set's weights in the processor's cache.
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
    """Return how far the best score is ahead, relative to its size, in float64; infinity for a single score."""
    if best == other:
        return np.inf
    size = abs(np.float64(scores[best]))
    return (np.float64(scores[best]) - np.float64(scores[other])) / (size if size > 0 else 1.0)


@compile_loop
def screen_rows(
    order: Ints,
    contexts: FloatArray,
    scores: FloatArray,
    weights: FloatArray,
    classes: IdArray,
    offsets: IdArray,
    tail: FloatArray,
    finishing: FloatArray,
    probes: int,
    probe_margin: float,
    dense_margin: float,
    ids: IdArray,
    logits: FloatArray,
    normalizer: FloatArray,
    scored: Ints,
) -> None:
    """Search the rows in `order`, each in its best clusters; others get `scored` TO_DENSE or UNSCORED.

    contexts: [B, d]. scores: [B, r], by the screen. weights: sets.bin. classes, offsets, tail: of the sets, as in
    index.safetensors. finishing [2]: logit scale and soft-cap (0 for none). probes, probe_margin, dense_margin: the
    plan's settings; a row that opens more than two clusters is UNSCORED. ids, logits: [B, k], normalizer, scored: [B],
    written.
    """
    lines = weights.size // classes.size
    for row in order:
        ids[row], logits[row] = NO_CLASS, LOWEST_SCORE
        context, (best, other) = contexts[row], find_two_best(scores[row])
        margin = compute_margin(scores[row], best, other)
        opened = min(probes + (margin < probe_margin), offsets.size - 1)
        if margin < dense_margin or opened > 2:
            scored[row] = TO_DENSE if margin < dense_margin else UNSCORED
            continue
        first, second = offsets[best], offsets[other]
        size, more = offsets[best + 1] - first, offsets[other + 1] - second if opened == 2 else 0
        values, new = np.empty(size + more, np.float32), 0
        first_ids, second_ids = classes[first : first + size], classes[second : second + more]
        score_cluster(context, weights, lines, first, finishing, values[:size])
        merge_best(values[:size], first_ids, logits[row], ids[row])
        if more:
            score_cluster(context, weights, lines, second, finishing, values[size:])
            new = drop_repeated(first_ids, second_ids, values[size:])
            merge_best(values[size:], second_ids, logits[row], ids[row])
        normalizer[row] = logits[row, 0] + np.log(sum_exp(values, logits[row, 0])) + tail[best]
        scored[row] = size + new


@compile_loop
def screen_all_rows(contexts: FloatArray, screen: FloatArray, *others: Any) -> None:
    """Search all rows by `screen_rows`, with the scores of `screen` [d, r]."""
    scores, order = choose_sets(contexts, screen)
    screen_rows(order, contexts, scores, *others)


@compile_loop
def gate_rows(
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
    """Search the rows in `order`, each in its best expert; writes ids and logits [B, k], normalizer and scored [B].

    contexts: [B, d]. scores: [B, K], by the gate. weights: sets.bin. classes, offsets: of the experts, as in
    index.safetensors.
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
        values = np.empty(last - first, np.float32)
        multiply_rows(rows[first:last], factors, values)
        merge_best(values, classes[first:last], logits[row], ids[row])
        normalizer[row] = logits[row, 0] + np.log(sum_exp(values, logits[row, 0]))
        scored[row] = last - first


@compile_loop
def gate_all_rows(contexts: FloatArray, gate: FloatArray, *others: Any) -> None:
    """Search all rows by `gate_rows`, with the scores of `gate` [d, K]."""
    scores, order = choose_sets(contexts, gate)
    gate_rows(order, contexts, scores, *others)
