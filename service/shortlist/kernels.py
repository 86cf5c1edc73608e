"""Compiled loops of plan `grouped`, by numba: a row's whole search without leaving machine code.

What they save beside operators and numpy: a call for every step, passes over all scores, rows copied together before
they are multiplied. Each step equals the operators of the plan's graphs, but for the order of float32 sums.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .byte_products import LANES, Bytes, block_products, compiled, row_product
from .compiled_selection import LOWEST, NO_SIZES, Ints, bar_for, best_previews, reaching
from .result import FloatArray, IdArray

Context = npt.NDArray[np.int8]

ZERO_POINT = 128  # weights are stored as unsigned bytes around it
LEVELS = np.float32(127)
TINY: np.float32 = np.finfo(np.float32).tiny
SUMS = {"reassoc", "contract", "nsz"}  # float sums in any order: else no loop over them is vectorised


class Tables(NamedTuple):
    """What a search reads: G groups of classes, their rows in blocks of `LANES`, the last of a group filled up.

    projection: [W + 1, d]; the last row gives the tail. centres [., W / 4, LANES, 4], centre_scale [G], reach [G]: of
    groups. starts: [G + 1] where groups begin in `order`, blocks: [G + 1] in `previews` [., W / 4, LANES, 4].
    scale: [., LANES], bias: the same, or empty: of `previews`. order: [m] ids. codes [m, d] and code_scale [m]: int8
    rows. code_bias: [m] or empty. rows: [V, d].
    """

    projection: FloatArray
    centres: Bytes
    centre_scale: FloatArray
    reach: FloatArray
    starts: IdArray
    blocks: IdArray
    previews: Bytes
    scale: FloatArray
    bias: FloatArray
    order: IdArray
    codes: Bytes
    code_scale: FloatArray
    code_bias: FloatArray
    rows: FloatArray


class Limits(NamedTuple):
    """The plan's options of these names; `tail` is added to the tail's product; soft_cap is 0 where there is none."""

    previewed: int
    candidates: int
    full_view: int
    tail: float
    tail_limit: float
    logit_scale: float
    soft_cap: float


def plain_dot(left: FloatArray, right: FloatArray) -> np.float32:
    """Of two vectors."""
    total = np.float32(0)
    for i in range(left.size):
        total += left[i] * right[i]
    return total


dot = compiled(plain_dot, fastmath=SUMS)


@compiled
def quantize(values: FloatArray, levels: Context) -> Any:
    """Write `values` as whole numbers -127..127; returns the scale, and `ZERO_POINT` times their sum, as int32."""
    peak = TINY
    for i in range(values.size):
        peak = max(peak, abs(values[i]))
    scale = np.float32(peak / LEVELS)
    total = np.int32(0)
    for i in range(values.size):
        level = np.int32(np.rint(values[i] / scale))
        levels[i] = level
        total += level
    return scale, np.int32(ZERO_POINT * total)


@compiled
def score_groups(tables: Tables, levels: Context, shift: int, row_scale: np.float32, scores: FloatArray) -> None:
    """Scores [G] of all groups."""
    sums = np.empty(LANES * len(tables.centres), np.int32)
    for block in range(len(tables.centres)):
        block_products(tables.centres, block, levels, sums[LANES * block :])
    for i in range(scores.size):
        scores[i] = np.float32(sums[i] - shift) * tables.centre_scale[i] * row_scale + tables.reach[i]


@compiled
def preview_group(
    tables: Tables,
    group: int,
    levels: Context,
    shift: int,
    row_scale: np.float32,
    sums: Ints,
    scores: FloatArray,
    at: Ints,
) -> Any:
    """Previews of one group's classes, and the position of each block's first; returns how many, with fillers."""
    start = tables.blocks[group]
    blocks = tables.blocks[group + 1] - start
    for block in range(blocks):
        block_products(tables.previews, start + block, levels, sums[LANES * block :])
        at[block] = tables.starts[group] + LANES * block
    size = LANES * blocks
    scale = tables.scale[LANES * start : LANES * start + size]
    for i in range(size):
        scores[i] = np.float32(sums[i] - shift) * scale[i]
    if tables.bias.size:
        bias = tables.bias[LANES * start : LANES * start + size]
        for i in range(size):
            scores[i] += bias[i] / row_scale
    scores[tables.starts[group + 1] - tables.starts[group] : size] = LOWEST
    return size


@compiled
def finished(product: np.float32, bias: np.float32, limits: Limits) -> np.float32:
    """A logit: bias, logit scale and soft-cap."""
    logit = (product + bias) * np.float32(limits.logit_scale)
    if limits.soft_cap > 0:
        cap = np.float32(limits.soft_cap)
        logit = cap * np.tanh(logit / cap)
    return logit


@compiled
def log_sum(logits: FloatArray) -> Any:
    """Log of the sum of exp(logits) [n]."""
    peak = LOWEST
    for logit in logits:
        peak = max(peak, logit)
    total = np.float32(0)
    for logit in logits:
        total += np.exp(logit - peak)
    return peak + np.log(total)


@compiled
def bias_at(tables: Tables, position: int) -> np.float32:
    """The bias of a class, 0 where there are none."""
    return tables.code_bias[position] if tables.code_bias.size else np.float32(0)


@compiled
def score_rows(tables: Tables, limits: Limits, context: FloatArray, positions: Ints, values: FloatArray) -> None:
    """Logits by int8 rows of the classes at `positions` [n] of `order`, into `values`."""
    levels = np.empty(context.size, np.int8)
    row_scale, shift = quantize(context, levels)
    for i in range(positions.size):
        at = positions[i]
        product = np.float32(row_product(tables.codes, at, levels) - shift) * tables.code_scale[at]
        values[i] = finished(product * row_scale, bias_at(tables, at), limits)


@compiled
def score_exactly(
    tables: Tables, limits: Limits, context: FloatArray, positions: Ints, kept: Ints, values: FloatArray
) -> None:
    """Exact logits in the place of those that are `kept`."""
    for i in kept:
        product = dot(tables.rows[tables.order[positions[i]]], context)
        values[i] = finished(product, bias_at(tables, positions[i]), limits)


@compiled
def best_of(order: IdArray, values: FloatArray, positions: Ints, kept: Ints, ids: IdArray, logits: FloatArray) -> None:
    """Ids and logits [k] of the best that are `kept`, k or more; equal ones by id."""
    for rank in range(ids.size):
        top = rank
        for i in range(rank + 1, kept.size):
            one, two = kept[i], kept[top]
            first = order[positions[one]] < order[positions[two]]
            if values[one] > values[two] or (values[one] == values[two] and first):
                top = i
        kept[rank], kept[top] = kept[top], kept[rank]
        ids[rank], logits[rank] = order[positions[kept[rank]]], values[kept[rank]]


@compiled
def search(
    contexts: FloatArray,
    tables: Tables,
    limits: Limits,
    ids: IdArray,
    logits: FloatArray,
    normalizer: FloatArray,
    scored: Ints,
) -> None:
    """Answers of `contexts` [B, d] into ids and logits [B, k], log-normalisers and numbers of candidates [B].

    A row for which float32 has no candidates gets NaN for its normaliser.
    """
    width, everything = tables.projection.shape[0] - 1, tables.blocks[-1] * LANES
    projected, levels = np.empty(width + 1, np.float32), np.empty(width, np.int8)
    groups, sizes = np.empty(tables.reach.size, np.float32), np.empty(tables.reach.size, np.int32)
    for group in range(sizes.size):
        sizes[group] = tables.starts[group + 1] - tables.starts[group]
    scores, sums = np.empty(everything, np.float32), np.empty(everything, np.int32)
    values, at = np.empty(everything, np.float32), np.empty(tables.blocks[-1], np.int32)
    chosen, kept = np.empty(everything, np.int32), np.empty(everything, np.int32)
    for row in range(len(contexts)):
        context = contexts[row]
        for i in range(width + 1):
            projected[i] = dot(tables.projection[i], context)
        row_scale, shift = quantize(projected[:width], levels)
        score_groups(tables, levels, shift, row_scale, groups)
        bar, count = bar_for(groups, sizes, limits.previewed), 0
        for group in range(sizes.size):
            if groups[group] >= bar:
                rest = sums[count:], scores[count:], at[count // LANES :]
                count += preview_group(tables, group, levels, shift, row_scale, *rest)
        count = best_previews(scores[:count], limits.candidates, chosen)
        for i in range(count):
            chosen[i] = at[chosen[i] // LANES] + chosen[i] % LANES
        score_rows(tables, limits, context, chosen[:count], values)
        bar = bar_for(values[:count], NO_SIZES, limits.full_view)
        most = reaching(values[:count], bar, kept)
        normalizer[row], scored[row] = np.nan, count
        if most >= ids.shape[1]:
            score_exactly(tables, limits, context, chosen, kept[:most], values)
            inside = log_sum(values[:count])
            tail = min(projected[width] + np.float32(limits.tail), inside + np.float32(limits.tail_limit))
            normalizer[row] = np.logaddexp(inside, tail)
            best_of(tables.order, values, chosen, kept[:most], ids[row], logits[row])
