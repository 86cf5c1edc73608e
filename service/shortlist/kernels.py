"""Compiled loops of plan `grouped`, by numba: a row's whole search without leaving machine code.

What they save beside operators and numpy: a call for every step, passes over all scores, rows copied together before
they are multiplied. Each step equals the operators of the plan's graphs, but for float32 roundings.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .byte_products import BYTES, LANES, STEP, ZERO_POINT, Bytes, compiled, fetch, fetch_line, row_product
from .compiled_previews import (
    FLOAT,
    Context,
    add_bias,
    add_nibbles,
    list_blocks,
    quantize,
    score_blocks,
    sum_of,
)
from .compiled_selection import LOWEST, NO_SIZES, Ints, bar_for, best_previews, reaching
from .result import FloatArray, IdArray

AHEAD = 6  # int8 rows that are asked for before they are needed
SUMS = {"reassoc", "contract", "nsz"}  # float sums in any order: else no loop over them is vectorised


class Tables(NamedTuple):
    """What a search reads: G groups of classes, their rows in blocks of `LANES`, the last of a group filled up.

    projection: [W, d] int8, projection_scale: [W]. tail: [d]. centres [., W / 4, LANES, 4], centre_scale [., LANES],
    reach [G]: of groups. starts: [G + 1] where groups begin in `order`, blocks: [G + 1] in previews. previews: the
    first columns in int8 [., C / 4, LANES, 4], nibbles: the others in 4 bits [., ., LANES, 4], scale, nibble_scale
    [., LANES]: theirs. bias: [., LANES] or empty. order: [m] ids. codes [m, .] and code_scale [m]: int8 rows, filled
    up to whole lines. code_bias: [m] or empty. rows: [V, d].
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
    nibbles: Bytes
    nibble_scale: FloatArray
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


class Room(NamedTuple):
    """What a search writes on its way, allocated once for all rows."""

    projected: FloatArray
    levels: Context
    row_levels: Context
    groups: FloatArray
    sizes: Ints
    every: Ints
    scores: FloatArray
    values: FloatArray
    listed: Ints
    at: Ints
    filled: Ints
    chosen: Ints
    kept: Ints


@compiled
def room_for(tables: Tables) -> Room:
    """Room for the searches of one call."""
    width, groups, blocks = len(tables.projection), tables.reach.size, tables.blocks[-1]
    classes = blocks * LANES
    whole = max(tables.centres.shape[1], tables.previews.shape[1] + 2 * tables.nibbles.shape[1]) * BYTES
    sizes = np.empty(groups, np.int32)
    for group in range(groups):
        sizes[group] = tables.starts[group + 1] - tables.starts[group]
    return Room(
        np.empty(width, np.float32),
        np.zeros(whole, np.int8),
        np.zeros(tables.codes.shape[1], np.int8),
        np.empty(len(tables.centres) * LANES, np.float32),
        sizes,
        np.arange(len(tables.centres)).astype(np.int32),
        np.empty(classes, np.float32),
        np.empty(classes, np.float32),
        np.empty(blocks, np.int32),
        np.empty(blocks, np.int32),
        np.empty(blocks, np.int32),
        np.empty(classes, np.int32),
        np.empty(classes, np.int32),
    )


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
def open_groups(tables: Tables, limits: Limits, row_scale: np.float32, room: Room) -> Any:
    """List the blocks of the best groups; returns how many."""
    levels = room.levels[: tables.centres.shape[1] * BYTES]
    score_blocks(tables.centres, tables.centre_scale, room.every, levels, room.groups)
    groups = room.groups[: tables.reach.size]
    for i in range(groups.size):
        groups[i] = groups[i] * row_scale + tables.reach[i]
    opened = reaching(groups, bar_for(groups, room.sizes, limits.previewed), room.chosen)
    return list_blocks(tables.starts, tables.blocks, room.chosen[:opened], room.listed, room.at, room.filled)


@compiled
def choose(tables: Tables, limits: Limits, context: FloatArray, room: Room) -> Any:
    """The positions of a row's candidates, ascending, in room.chosen; returns how many."""
    for i in range(room.projected.size):
        room.projected[i] = byte_dot(tables.projection[i], tables.projection_scale[i], context)
    row_scale = quantize(room.projected, room.levels)
    blocks = open_groups(tables, limits, row_scale, room)
    listed, scores = room.listed[:blocks], room.scores[: LANES * blocks]
    wide = tables.previews.shape[1] * BYTES
    score_blocks(tables.previews, tables.scale, listed, room.levels[:wide], scores)
    if tables.nibbles.size:
        add_nibbles(tables.nibbles, tables.nibble_scale, listed, room.levels[wide:], scores)
    add_bias(scores, tables.bias, listed, room.filled[:blocks], row_scale)
    count = best_previews(scores, limits.candidates, room.chosen)
    for i in range(count):
        room.chosen[i] = room.at[room.chosen[i] // LANES] + room.chosen[i] % LANES
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
    tables: Tables, limits: Limits, context: FloatArray, levels: Context, positions: Ints, values: FloatArray
) -> None:
    """Logits by int8 rows of the classes at `positions` [n] of `order`, into `values`."""
    row_scale, width, start = quantize(context, levels), tables.codes.shape[1], tables.codes.ctypes.data
    shift, rounded, scale, bias = ZERO_POINT * sum_of(levels), levels.ctypes.data, tables.code_scale, tables.code_bias
    for i in range(positions.size):
        if i + AHEAD < positions.size:
            fetch(start + positions[i + AHEAD] * width, width)
        product = row_product(start + positions[i] * width, rounded, width // STEP) - shift
        values[i] = np.float32(product) * scale[positions[i]] * row_scale
    for i in range(positions.size):
        values[i] = finished(values[i], bias_at(bias, positions[i]), limits)


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
    room = room_for(tables)
    for row in range(len(contexts)):
        context, count = contexts[row], choose(tables, limits, contexts[row], room)
        positions, values = room.chosen[:count], room.values[:count]
        score_rows(tables, limits, context, room.row_levels, positions, values)
        most = reaching(values, bar_for(values, NO_SIZES, limits.full_view), room.kept)
        normalizer[row], scored[row] = np.nan, count
        if most >= ids.shape[1]:
            kept = room.kept[:most]
            score_exactly(tables, limits, context, positions, kept, values)
            inside = log_sum(values)
            guess = dot(tables.tail, context) + np.float32(limits.tail)
            normalizer[row] = np.logaddexp(inside, min(guess, inside + np.float32(limits.tail_limit)))
            best_of(tables.order, values, positions, kept, ids[row], logits[row])
