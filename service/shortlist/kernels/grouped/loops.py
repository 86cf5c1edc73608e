"""Compiled loops of plan `grouped`, by numba: the whole search of a row runs without leaving machine code.

Groups are opened by their centres, blocks in them chosen by theirs, classes in these by previews; the candidates are
scored by int8 rows, and the best of them exactly. Compared with operators and numpy this saves a call for each step,
passes over all scores, and copying rows together before they are multiplied. Each step equals the operators of the
plan's graphs but for rounding, and for up to a 32nd more groups and blocks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shortlist.core.results import FloatArray, IdArray
from shortlist.kernels.primitives.arrays import FLOAT_BYTES, Ints
from shortlist.kernels.primitives.digits import Digits, DigitSteps, project_context, score_by_digits, split_digits
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.layout import LANE_BYTES, LANES, WEIGHTS_PER_BYTE
from shortlist.kernels.primitives.products import prefetch
from shortlist.kernels.primitives.select import (
    LOWEST_SCORE,
    NO_SIZES,
    SURPLUS_DIVISOR,
    find_threshold,
    select_best,
    select_reaching,
)
from shortlist.kernels.primitives.sums import dot
from shortlist.kernels.primitives.vnni import prefetch_line

from .previews import Levels, add_bias, quantize, score_block_rows, score_centres, score_previews
from .tables import Tables, read_tables


class SearchLimits(NamedTuple):
    """The plan's settings of these names: numbers of classes, then how logits and the normalizer are finished.

    soft_cap: 0 for none. tail_offset: added to the product of the tail, which estimates the log-sum of what is not
    scored. tail_limit: how much larger than the candidates' log-sum that estimate may be.
    """

    opened: int
    previewed: int
    candidates: int
    full_view: int
    logit_scale: float
    soft_cap: float
    tail_offset: float
    tail_limit: float


class Scratch(NamedTuple):
    """Intermediate results of a search, allocated once for all rows.

    digits, projected, levels: the context in two digits, projected, and in whole numbers. groups, block_scores, scores:
    of groups, blocks and previews. block_ids, block_sizes: the blocks chosen so far. positions: of the candidates in
    `Tables.order`. values: their logits. exact: which of them are scored exactly, as indices of `positions`.
    """

    digits: Digits
    projected: FloatArray
    levels: Levels
    groups: FloatArray
    block_scores: FloatArray
    scores: FloatArray
    values: FloatArray
    block_ids: Ints
    block_sizes: Ints
    positions: Ints
    exact: Ints


@compile_loop
def allocate_scratch(tables: Tables) -> Scratch:
    """Allocate the scratch of one call."""
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
def open_groups(tables: Tables, limits: SearchLimits, row_scale: np.float32, scratch: Scratch) -> Any:
    """Write the blocks of the best groups to scratch.block_ids; returns how many."""
    score_centres(tables.centres, tables.centre_scale, scratch.levels, scratch.groups)
    groups = scratch.groups[: tables.reach.size]
    for i in range(groups.size):
        groups[i] = groups[i] * row_scale + tables.reach[i]
    threshold = find_threshold(groups, tables.sizes, limits.opened, limits.opened // SURPLUS_DIVISOR)
    count = 0
    for group in scratch.positions[: select_reaching(groups, threshold, scratch.positions)]:
        for block in range(tables.blocks[group], tables.blocks[group + 1]):
            scratch.block_ids[count] = block
            count += 1
    return count


@compile_loop
def choose_blocks(tables: Tables, limits: SearchLimits, row_scale: np.float32, scratch: Scratch, count: int) -> Any:
    """Keep the best of the first `count` blocks of scratch.block_ids there; returns how many."""
    block_ids, sizes, scores = scratch.block_ids[:count], scratch.block_sizes[:count], scratch.block_scores[:count]
    score_block_rows(tables.block_rows, tables.block_scale, block_ids, scratch.levels, scores)
    for i in range(count):
        scores[i] = scores[i] * row_scale + tables.block_reach[block_ids[i]]
        sizes[i] = tables.filled[block_ids[i]]
    threshold = find_threshold(scores, sizes, limits.previewed, limits.previewed // SURPLUS_DIVISOR)
    chosen_count = select_reaching(scores, threshold, scratch.positions)
    for i in range(chosen_count):
        block_ids[i] = block_ids[scratch.positions[i]]
    return chosen_count


@compile_loop
def choose_candidates(tables: Tables, limits: SearchLimits, steps: DigitSteps, scratch: Scratch) -> Any:
    """Write the positions of a row's candidates, ascending, to scratch.positions; returns how many."""
    project_context(tables.projection, tables.projection_scale, scratch.digits, steps, scratch.projected)
    row_scale = quantize(scratch.projected, scratch.levels)
    blocks = choose_blocks(tables, limits, row_scale, scratch, open_groups(tables, limits, row_scale, scratch))
    block_ids, scores = scratch.block_ids[:blocks], scratch.scores[: LANES * blocks]
    score_previews(tables.previews, tables.steps, block_ids, scratch.levels, scores)
    add_bias(scores, tables.bias, block_ids, tables.filled, row_scale)
    count = select_best(scores, limits.candidates, scratch.positions)
    for i in range(count):
        scratch.positions[i] = tables.firsts[block_ids[scratch.positions[i] // LANES]] + scratch.positions[i] % LANES
    return count


@compile_loop
def finish_logit(product: np.float32, bias: np.float32, limits: SearchLimits) -> np.float32:
    """Apply bias, logit scale and soft-cap to a product."""
    logit = (product + bias) * np.float32(limits.logit_scale)
    if limits.soft_cap > 0:
        cap = np.float32(limits.soft_cap)
        logit = cap * np.tanh(logit / cap)
    return logit


@compile_loop
def log_sum_exp(logits: FloatArray) -> Any:
    """Return the log of the sum of exp(logits) [n]."""
    peak = LOWEST_SCORE
    for logit in logits:
        peak = max(peak, logit)
    total = np.float32(0)
    for logit in logits:
        total += np.exp(logit - peak)
    return peak + np.log(total)


@compile_loop
def get_bias(bias: FloatArray, position: int) -> np.float32:
    """Return the bias at a position, 0 where the head has no biases."""
    return bias[position] if bias.size else np.float32(0)


@compile_loop
def score_candidates(
    tables: Tables, limits: SearchLimits, digits: Digits, steps: DigitSteps, positions: Ints, values: FloatArray
) -> None:
    """Write the logits, by int8 rows, of the classes at `positions` [n] of `Tables.order` to `values` [n]."""
    score_by_digits(tables.codes, tables.code_scale, positions, digits, steps, values)
    for i in range(positions.size):
        values[i] = finish_logit(values[i], get_bias(tables.code_bias, positions[i]), limits)


@compile_loop
def rescore_exactly(
    tables: Tables, limits: SearchLimits, context: FloatArray, positions: Ints, exact: Ints, values: FloatArray
) -> None:
    """Replace the `values` with indices in `exact` by exact logits."""
    width, start = tables.rows.shape[1], tables.rows.ctypes.data
    for i in exact:  # first every row's first line: each needs a look-up in the page tables
        prefetch_line(start + tables.order[positions[i]] * width * FLOAT_BYTES)
    for i in exact:
        prefetch(start + tables.order[positions[i]] * width * FLOAT_BYTES, width * FLOAT_BYTES)
    for i in exact:
        product = dot(tables.rows[tables.order[positions[i]]], context)
        values[i] = finish_logit(product, get_bias(tables.code_bias, positions[i]), limits)


@compile_loop
def write_best(
    order: IdArray, values: FloatArray, positions: Ints, exact: Ints, ids: IdArray, logits: FloatArray
) -> None:
    """Write ids and logits [k] of the best of those with indices in `exact`, k or more; equal ones by id."""
    for rank in range(ids.size):
        top = rank
        for i in range(rank + 1, exact.size):
            one, two = exact[i], exact[top]
            first = order[positions[one]] < order[positions[two]]
            if values[one] > values[two] or (values[one] == values[two] and first):
                top = i
        exact[rank], exact[top] = exact[top], exact[rank]
        ids[rank], logits[rank] = order[positions[exact[rank]]], values[exact[rank]]


@compile_loop
def search_rows(
    contexts: FloatArray,
    addresses: IdArray,
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
    """Search `contexts` [B, d]; writes ids and logits [B, k], log-normalizers [B], numbers of candidates `scored` [B].

    addresses: as of `list_addresses`. opened to full_view: as in SearchLimits. finishing [4]: its other fields, in
    their order. A row for which float32 leaves no candidates gets NaN for its normalizer, ids -1 and logits -inf.
    """
    tables = read_tables(addresses)
    scratch = allocate_scratch(tables)
    limits = SearchLimits(
        opened, previewed, candidates, full_view, finishing[0], finishing[1], finishing[2], finishing[3]
    )
    for row in range(len(contexts)):
        context, steps = contexts[row], split_digits(contexts[row], scratch.digits)
        count = choose_candidates(tables, limits, steps, scratch)
        positions, values = scratch.positions[:count], scratch.values[:count]
        score_candidates(tables, limits, scratch.digits, steps, positions, values)
        exact_count = select_reaching(values, find_threshold(values, NO_SIZES, limits.full_view, 0), scratch.exact)
        ids[row], logits[row], normalizer[row], scored[row] = -1, LOWEST_SCORE, np.nan, count
        if exact_count >= ids.shape[1]:
            exact = scratch.exact[:exact_count]
            rescore_exactly(tables, limits, context, positions, exact, values)
            log_sum = log_sum_exp(values)
            normalizer[row] = log_sum
            if count < tables.order.size:  # else no class is left to guess
                tail = dot(tables.tail, context) + np.float32(limits.tail_offset)
                normalizer[row] = np.logaddexp(log_sum, min(tail, log_sum + np.float32(limits.tail_limit)))
            write_best(tables.order, values, positions, exact, ids[row], logits[row])
