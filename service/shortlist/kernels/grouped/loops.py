"""Compiled loops of plan `grouped`, by numba: a row's whole search without leaving machine code.

What they save beside operators and numpy: a call for every step, passes over all scores, rows copied together before
they are multiplied. Each step equals the operators of the plan's graphs, but for roundings, and for up to a 32nd more
groups and blocks that are looked at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shortlist.core.results import FloatArray, IdArray
from shortlist.kernels.primitives.arrays import FLOAT_BYTES, Ints
from shortlist.kernels.primitives.digits import Digits, DigitSteps, project_context, score_by_digits, split_digits
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.select import (
    LOWEST_SCORE,
    NO_SIZES,
    SURPLUS_DIVISOR,
    find_threshold,
    select_best,
    select_reaching,
)
from shortlist.kernels.primitives.sums import dot
from shortlist.kernels.primitives.vnni import LANE_BYTES, LANES, WEIGHTS_PER_BYTE, prefetch, prefetch_line

from .previews import Levels, add_bias, quantize, score_block_rows, score_centres, score_previews
from .tables import Tables, read_tables


class SearchLimits(NamedTuple):
    """The plan's options of these names; `tail` is added to the tail's product; soft_cap is 0 where there is none."""

    opened: int
    previewed: int
    candidates: int
    full_view: int
    tail: float
    tail_limit: float
    logit_scale: float
    soft_cap: float


class Scratch(NamedTuple):
    """What a search writes on its way, allocated once for all rows."""

    digits: Digits
    projected: FloatArray
    levels: Levels
    groups: FloatArray
    block_scores: FloatArray
    scores: FloatArray
    values: FloatArray
    listed: Ints
    block_sizes: Ints
    chosen: Ints
    kept: Ints


@compile_loop
def allocate_scratch(tables: Tables) -> Scratch:
    """Room for the searches of one call."""
    blocks, columns = tables.firsts.size, (tables.steps[0] + WEIGHTS_PER_BYTE * tables.steps[1]) * LANE_BYTES
    classes = blocks * LANES
    levels = max(
        columns, tables.centres.shape[1] * LANE_BYTES, tables.block_rows.shape[1], tables.projection_scale.size
    )
    return Scratch(
        np.zeros((2, max(tables.projection.shape[1] * LANE_BYTES, tables.codes.shape[1])), np.int8),
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


@compile_loop
def open_groups(tables: Tables, limits: SearchLimits, row_scale: np.float32, room: Scratch) -> Any:
    """List the blocks of the best groups; returns how many."""
    score_centres(tables.centres, tables.centre_scale, room.levels, room.groups)
    groups = room.groups[: tables.reach.size]
    for i in range(groups.size):
        groups[i] = groups[i] * row_scale + tables.reach[i]
    bar = find_threshold(groups, tables.sizes, limits.opened, limits.opened // SURPLUS_DIVISOR)
    count = 0
    for group in room.chosen[: select_reaching(groups, bar, room.chosen)]:
        for block in range(tables.blocks[group], tables.blocks[group + 1]):
            room.listed[count] = block
            count += 1
    return count


@compile_loop
def choose_blocks(tables: Tables, limits: SearchLimits, row_scale: np.float32, room: Scratch, count: int) -> Any:
    """Of the `count` blocks listed those that score best; returns how many."""
    listed, sizes, scores = room.listed[:count], room.block_sizes[:count], room.block_scores[:count]
    score_block_rows(tables.block_rows, tables.block_scale, listed, room.levels, scores)
    for i in range(count):
        scores[i] = scores[i] * row_scale + tables.block_reach[listed[i]]
        sizes[i] = tables.filled[listed[i]]
    kept = select_reaching(
        scores, find_threshold(scores, sizes, limits.previewed, limits.previewed // SURPLUS_DIVISOR), room.chosen
    )
    for i in range(kept):
        listed[i] = listed[room.chosen[i]]
    return kept


@compile_loop
def choose_candidates(tables: Tables, limits: SearchLimits, steps: DigitSteps, room: Scratch) -> Any:
    """The positions of a row's candidates, ascending, in room.chosen; returns how many."""
    project_context(tables.projection, tables.projection_scale, room.digits, steps, room.projected)
    row_scale = quantize(room.projected, room.levels)
    blocks = choose_blocks(tables, limits, row_scale, room, open_groups(tables, limits, row_scale, room))
    listed, scores = room.listed[:blocks], room.scores[: LANES * blocks]
    score_previews(tables.previews, tables.steps, listed, room.levels, scores)
    add_bias(scores, tables.bias, listed, tables.filled, row_scale)
    count = select_best(scores, limits.candidates, room.chosen)
    for i in range(count):
        room.chosen[i] = tables.firsts[listed[room.chosen[i] // LANES]] + room.chosen[i] % LANES
    return count


@compile_loop
def finish_logit(product: np.float32, bias: np.float32, limits: SearchLimits) -> np.float32:
    """A logit: bias, logit scale and soft-cap."""
    logit = (product + bias) * np.float32(limits.logit_scale)
    if limits.soft_cap > 0:
        cap = np.float32(limits.soft_cap)
        logit = cap * np.tanh(logit / cap)
    return logit


@compile_loop
def log_sum_exp(logits: FloatArray) -> Any:
    """Log of the sum of exp(logits) [n]."""
    peak = LOWEST_SCORE
    for logit in logits:
        peak = max(peak, logit)
    total = np.float32(0)
    for logit in logits:
        total += np.exp(logit - peak)
    return peak + np.log(total)


@compile_loop
def get_bias(bias: FloatArray, position: int) -> np.float32:
    """The bias of a class, 0 where there are none."""
    return bias[position] if bias.size else np.float32(0)


@compile_loop
def score_candidates(
    tables: Tables, limits: SearchLimits, digits: Digits, steps: DigitSteps, positions: Ints, values: FloatArray
) -> None:
    """Logits by int8 rows of the classes at `positions` [n] of `order`, into `values`."""
    score_by_digits(tables.codes, tables.code_scale, positions, digits, steps, values)
    for i in range(positions.size):
        values[i] = finish_logit(values[i], get_bias(tables.code_bias, positions[i]), limits)


@compile_loop
def rescore_exactly(
    tables: Tables, limits: SearchLimits, context: FloatArray, positions: Ints, kept: Ints, values: FloatArray
) -> None:
    """Exact logits in the place of those that are `kept`."""
    width, start = tables.rows.shape[1], tables.rows.ctypes.data
    for i in kept:  # every row's first line first: each has to be looked for in the page tables
        prefetch_line(start + tables.order[positions[i]] * width * FLOAT_BYTES)
    for i in kept:
        prefetch(start + tables.order[positions[i]] * width * FLOAT_BYTES, width * FLOAT_BYTES)
    for i in kept:
        product = dot(tables.rows[tables.order[positions[i]]], context)
        values[i] = finish_logit(product, get_bias(tables.code_bias, positions[i]), limits)


@compile_loop
def write_best(
    order: IdArray, values: FloatArray, positions: Ints, kept: Ints, ids: IdArray, logits: FloatArray
) -> None:
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


@compile_loop
def search_rows(
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
    tables = read_tables(at)
    room = allocate_scratch(tables)
    limits = SearchLimits(
        opened, previewed, candidates, full_view, finishing[0], finishing[1], finishing[2], finishing[3]
    )
    for row in range(len(contexts)):
        context, steps = contexts[row], split_digits(contexts[row], room.digits)
        count = choose_candidates(tables, limits, steps, room)
        positions, values = room.chosen[:count], room.values[:count]
        score_candidates(tables, limits, room.digits, steps, positions, values)
        most = select_reaching(values, find_threshold(values, NO_SIZES, limits.full_view, 0), room.kept)
        ids[row], logits[row], normalizer[row], scored[row] = -1, LOWEST_SCORE, np.nan, count
        if most >= ids.shape[1]:
            kept = room.kept[:most]
            rescore_exactly(tables, limits, context, positions, kept, values)
            inside = log_sum_exp(values)
            guess = dot(tables.tail, context) + np.float32(limits.tail)
            normalizer[row] = np.logaddexp(inside, min(guess, inside + np.float32(limits.tail_limit)))
            write_best(tables.order, values, positions, kept, ids[row], logits[row])
