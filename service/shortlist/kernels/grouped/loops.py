"""Compiled loops of plan `grouped`, by numba: a row's whole search without leaving machine code.

What they save beside operators and numpy: a call for every step, passes over all scores, rows copied together before
they are multiplied. Each step equals the operators of the plan's graphs, but for roundings, and for up to a 32nd more
groups and blocks that are looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shortlist.core.results import FloatArray, IdArray
from shortlist.kernels.primitives.arrays import FLOAT, Ints
from shortlist.kernels.primitives.digits import Digits, Steps, in_digits, project, score_by_digits
from shortlist.kernels.primitives.jit import compiled
from shortlist.kernels.primitives.select import LOWEST, NO_SIZES, ROUGH, bar_for, best_previews, reaching
from shortlist.kernels.primitives.sums import dot
from shortlist.kernels.primitives.vnni import BYTES, LANES, QUARTERS, fetch, fetch_line

from .previews import Context, add_bias, preview_blocks, quantize, score_block_rows, score_blocks
from .tables import Tables, tables_at


class Limits(NamedTuple):
    """The plan's options of these names; `tail` is added to the tail's product; soft_cap is 0 where there is none."""

    opened: int
    previewed: int
    candidates: int
    full_view: int
    tail: float
    tail_limit: float
    logit_scale: float
    soft_cap: float


class Room(NamedTuple):
    """What a search writes on its way, allocated once for all rows."""

    digits: Digits
    projected: FloatArray
    levels: Context
    groups: FloatArray
    block_scores: FloatArray
    scores: FloatArray
    values: FloatArray
    listed: Ints
    block_sizes: Ints
    chosen: Ints
    kept: Ints


@compiled
def room_for(tables: Tables) -> Room:
    """Room for the searches of one call."""
    blocks, columns = tables.firsts.size, (tables.steps[0] + QUARTERS * tables.steps[1]) * BYTES
    classes = blocks * LANES
    levels = max(columns, tables.centres.shape[1] * BYTES, tables.block_rows.shape[1], tables.projection_scale.size)
    return Room(
        np.zeros((2, max(tables.projection.shape[1] * BYTES, tables.codes.shape[1])), np.int8),
        np.empty(tables.projection_scale.size, np.float32),
        np.zeros(levels, np.int8),
        np.empty(len(tables.centres) * LANES, np.float32),
        np.empty(blocks, np.float32),
        np.empty(classes, np.float32),
        np.empty(classes, np.float32),
        np.empty(blocks, np.int32),
        np.empty(blocks, np.int32),
        np.empty(classes, np.int32),
        np.empty(classes, np.int32),
    )


@compiled
def open_groups(tables: Tables, limits: Limits, row_scale: np.float32, room: Room) -> Any:
    """List the blocks of the best groups; returns how many."""
    score_blocks(tables.centres, tables.centre_scale, room.levels, room.groups)
    groups = room.groups[: tables.reach.size]
    for i in range(groups.size):
        groups[i] = groups[i] * row_scale + tables.reach[i]
    bar = bar_for(groups, tables.sizes, limits.opened, limits.opened // ROUGH)
    count = 0
    for group in room.chosen[: reaching(groups, bar, room.chosen)]:
        for block in range(tables.blocks[group], tables.blocks[group + 1]):
            room.listed[count] = block
            count += 1
    return count


@compiled
def keep_blocks(tables: Tables, limits: Limits, row_scale: np.float32, room: Room, count: int) -> Any:
    """Of the `count` blocks listed those that score best; returns how many."""
    listed, sizes, scores = room.listed[:count], room.block_sizes[:count], room.block_scores[:count]
    score_block_rows(tables.block_rows, tables.block_scale, listed, room.levels, scores)
    for i in range(count):
        scores[i] = scores[i] * row_scale + tables.block_reach[listed[i]]
        sizes[i] = tables.filled[listed[i]]
    kept = reaching(scores, bar_for(scores, sizes, limits.previewed, limits.previewed // ROUGH), room.chosen)
    for i in range(kept):
        listed[i] = listed[room.chosen[i]]
    return kept


@compiled
def choose(tables: Tables, limits: Limits, steps: Steps, room: Room) -> Any:
    """The positions of a row's candidates, ascending, in room.chosen; returns how many."""
    project(tables.projection, tables.projection_scale, room.digits, steps, room.projected)
    row_scale = quantize(room.projected, room.levels)
    blocks = keep_blocks(tables, limits, row_scale, room, open_groups(tables, limits, row_scale, room))
    listed, scores = room.listed[:blocks], room.scores[: LANES * blocks]
    preview_blocks(tables.previews, tables.steps, listed, room.levels, scores)
    add_bias(scores, tables.bias, listed, tables.filled, row_scale)
    count = best_previews(scores, limits.candidates, room.chosen)
    for i in range(count):
        room.chosen[i] = tables.firsts[listed[room.chosen[i] // LANES]] + room.chosen[i] % LANES
    return count


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
def bias_at(bias: FloatArray, position: int) -> np.float32:
    """The bias of a class, 0 where there are none."""
    return bias[position] if bias.size else np.float32(0)


@compiled
def score_rows(
    tables: Tables, limits: Limits, digits: Digits, steps: Steps, positions: Ints, values: FloatArray
) -> None:
    """Logits by int8 rows of the classes at `positions` [n] of `order`, into `values`."""
    score_by_digits(tables.codes, tables.code_scale, positions, digits, steps, values)
    for i in range(positions.size):
        values[i] = finished(values[i], bias_at(tables.code_bias, positions[i]), limits)


@compiled
def score_exactly(
    tables: Tables, limits: Limits, context: FloatArray, positions: Ints, kept: Ints, values: FloatArray
) -> None:
    """Exact logits in the place of those that are `kept`."""
    width, start = tables.rows.shape[1], tables.rows.ctypes.data
    for i in kept:  # every row's first line first: each has to be looked for in the page tables
        fetch_line(start + tables.order[positions[i]] * width * FLOAT)
    for i in kept:
        fetch(start + tables.order[positions[i]] * width * FLOAT, width * FLOAT)
    for i in kept:
        product = dot(tables.rows[tables.order[positions[i]]], context)
        values[i] = finished(product, bias_at(tables.code_bias, positions[i]), limits)


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
    at: IdArray,
    finishing: FloatArray,
    opened: int,
    previewed: int,
    candidates: int,
    full_view: int,
    ids: IdArray,
    logits: FloatArray,
    normalizer: FloatArray,
    scored: Ints,
) -> None:
    """Answers of `contexts` [B, d] into ids and logits [B, k], log-normalisers and numbers of candidates [B].

    at: the `addresses` of the tables. finishing: tail, tail_limit, logit_scale and soft_cap of Limits, before which
    its other fields come. A row for which float32 has no candidates gets NaN for its normaliser, -1 and -inf.
    """
    tables = tables_at(at)
    room = room_for(tables)
    limits = Limits(opened, previewed, candidates, full_view, finishing[0], finishing[1], finishing[2], finishing[3])
    for row in range(len(contexts)):
        context, steps = contexts[row], in_digits(contexts[row], room.digits)
        count = choose(tables, limits, steps, room)
        positions, values = room.chosen[:count], room.values[:count]
        score_rows(tables, limits, room.digits, steps, positions, values)
        most = reaching(values, bar_for(values, NO_SIZES, limits.full_view, 0), room.kept)
        ids[row], logits[row], normalizer[row], scored[row] = -1, LOWEST, np.nan, count
        if most >= ids.shape[1]:
            kept = room.kept[:most]
            score_exactly(tables, limits, context, positions, kept, values)
            inside = log_sum(values)
            guess = dot(tables.tail, context) + np.float32(limits.tail)
            normalizer[row] = np.logaddexp(inside, min(guess, inside + np.float32(limits.tail_limit)))
            best_of(tables.order, values, positions, kept, ids[row], logits[row])
