"""Compiled loops of plan `grouped`, by numba: a row's whole search without leaving machine code.

What they save beside operators and numpy: a call for every step, passes over all scores, rows copied together before
they are multiplied. Each step equals the operators of the plan's graphs, but for float32 roundings.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .byte_products import BYTES, LANES, STEP, ZERO_POINT, Bytes, block_products, compiled, fetch, row_product
from .compiled_selection import LOWEST, NO_SIZES, Ints, bar_for, best_previews, reaching
from .result import FloatArray, IdArray

Context = npt.NDArray[np.int8]

FLOAT = 4  # bytes
BLOCKS_AHEAD = 2
AHEAD = 6  # int8 rows that are asked for before they are needed
LEVELS = np.float32(127)
TINY = np.float32(1e-30)  # as in the exporter's `quantized`
SUMS = {"reassoc", "contract", "nsz"}  # float sums in any order: else no loop over them is vectorised


class Tables(NamedTuple):
    """What a search reads: G groups of classes, their rows in blocks of `LANES`, the last of a group filled up.

    projection: [W, d] int8, projection_scale: [W]. tail: [d]. centres [., W / 4, LANES, 4], centre_scale, reach [G]:
    of groups. starts: [G + 1] where groups begin in `order`, blocks: [G + 1] in `previews` [., W / 4, LANES, 4].
    scale: [., LANES], bias: the same, or empty: of `previews`. order: [m] ids. codes [m, d] and code_scale [m]: int8
    rows. code_bias: [m] or empty. rows: [V, d].
    """

    projection: npt.NDArray[np.int8]
    projection_scale: FloatArray
    tail: FloatArray
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


def plain_byte_dot(left: Context, scale: np.float32, right: FloatArray) -> np.float32:
    """Of scaled bytes and numbers."""
    total = np.float32(0)
    for i in range(right.size):
        total += (np.float32(left[i]) * scale) * right[i]
    return total


dot = compiled(plain_dot, fastmath=SUMS)
byte_dot = compiled(plain_byte_dot, fastmath=SUMS)


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
def list_blocks(starts: IdArray, blocks: IdArray, opened: Ints, listed: Ints, at: Ints, filled: Ints) -> Any:
    """The blocks of groups that are `opened`, the position of each one's first class, and how many it has."""
    count = 0
    for group in opened:
        first, end = blocks[group], starts[group + 1]
        for block in range(first, blocks[group + 1]):
            listed[count], at[count] = block, starts[group] + LANES * (block - first)
            filled[count] = min(LANES, end - at[count])
            count += 1
    return count


@compiled
def preview_blocks(
    previews: Bytes,
    scale: FloatArray,
    bias: FloatArray,
    listed: Ints,
    filled: Ints,
    levels: Context,
    shift: int,
    row_scale: np.float32,
    sums: Ints,
    scores: FloatArray,
) -> None:
    """Previews of the classes in the blocks that are `listed`; the lowest score for what fills them up."""
    size = previews.shape[1] * STEP
    for i in range(listed.size):
        if i + BLOCKS_AHEAD < listed.size:
            fetch(previews.ctypes.data + listed[i + BLOCKS_AHEAD] * size, size)
        block_products(previews, listed[i], levels, sums[LANES * i :])
    for i in range(listed.size):
        start, first = LANES * i, LANES * listed[i]
        for lane in range(LANES):
            scores[start + lane] = np.float32(sums[start + lane] - shift) * scale[first + lane]
        if bias.size:
            for lane in range(LANES):
                scores[start + lane] += bias[first + lane] / row_scale
        for lane in range(filled[i], LANES):
            scores[start + lane] = LOWEST


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
    width = tables.codes.shape[1]
    for i in range(positions.size):
        if i + AHEAD < positions.size:
            fetch(tables.codes.ctypes.data + positions[i + AHEAD] * width, width)
        at = positions[i]
        product = np.float32(row_product(tables.codes, at, levels) - shift) * tables.code_scale[at]
        values[i] = finished(product * row_scale, bias_at(tables, at), limits)


@compiled
def score_exactly(
    tables: Tables, limits: Limits, context: FloatArray, positions: Ints, kept: Ints, values: FloatArray
) -> None:
    """Exact logits in the place of those that are `kept`."""
    width = tables.rows.shape[1]
    for i in kept:
        fetch(tables.rows.ctypes.data + tables.order[positions[i]] * width * FLOAT, width * FLOAT)
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
    width, everything = len(tables.projection), tables.blocks[-1] * LANES
    projected, levels = np.empty(width, np.float32), np.zeros(tables.centres.shape[1] * BYTES, np.int8)
    groups, sizes = np.empty(tables.reach.size, np.float32), np.empty(tables.reach.size, np.int32)
    for group in range(sizes.size):
        sizes[group] = tables.starts[group + 1] - tables.starts[group]
    scores, sums = np.empty(everything, np.float32), np.empty(everything, np.int32)
    values, at = np.empty(everything, np.float32), np.empty(tables.blocks[-1], np.int32)
    listed, filled = np.empty_like(at), np.empty_like(at)
    chosen, kept = np.empty(everything, np.int32), np.empty(everything, np.int32)
    for row in range(len(contexts)):
        context = contexts[row]
        for i in range(width):
            projected[i] = byte_dot(tables.projection[i], tables.projection_scale[i], context)
        row_scale, shift = quantize(projected, levels)
        score_groups(tables, levels, shift, row_scale, groups)
        most = reaching(groups, bar_for(groups, sizes, limits.previewed), chosen)
        most = list_blocks(tables.starts, tables.blocks, chosen[:most], listed, at, filled)
        own = tables.previews, tables.scale, tables.bias
        preview_blocks(*own, listed[:most], filled[:most], levels, shift, row_scale, sums, scores)
        count = best_previews(scores[: LANES * most], limits.candidates, chosen)
        for i in range(count):
            chosen[i] = at[chosen[i] // LANES] + chosen[i] % LANES
        score_rows(tables, limits, context, chosen[:count], values)
        bar = bar_for(values[:count], NO_SIZES, limits.full_view)
        most = reaching(values[:count], bar, kept)
        normalizer[row], scored[row] = np.nan, count
        if most >= ids.shape[1]:
            score_exactly(tables, limits, context, chosen, kept[:most], values)
            inside = log_sum(values[:count])
            guess = dot(tables.tail, context) + np.float32(limits.tail)
            tail = min(guess, inside + np.float32(limits.tail_limit))
            normalizer[row] = np.logaddexp(inside, tail)
            best_of(tables.order, values, chosen, kept[:most], ids[row], logits[row])
