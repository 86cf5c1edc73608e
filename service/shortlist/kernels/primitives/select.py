"""The n largest of many scores, by compiled loops: bars found by bisection, which vectorises where sorting does not."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.core.results import FloatArray

from .arrays import Ints
from .jit import compile_loop
from .vnni import FLOAT32_LANES, INT32, INT32_LANES, LANES, VNNI, broadcast, load_value

LOWEST_SCORE = np.float32(-np.inf)
STRIP_SCORES = 8  # scores of which the best is looked at first
SURPLUS_DIVISOR = 32  # this part more than is wanted does no harm where a later stage looks closer
NO_SIZES = np.empty(0, np.int32)


@compile_loop
def count_reaching(scores: FloatArray, sizes: Ints, bar: np.float32) -> np.int32:
    """The sum of the sizes of what reaches a bar; every size is 1 where none are given."""
    count = np.int32(0)
    if sizes.size:
        for i in range(scores.size):
            count += sizes[i] if scores[i] >= bar else np.int32(0)
    else:
        for i in range(scores.size):
            count += np.int32(scores[i] >= bar)
    return count


@compile_loop
def find_threshold(scores: FloatArray, sizes: Ints, wanted: int, more: int) -> np.float32:
    """The highest bar that `scores` [n] of `wanted` in all, by `sizes`, reach, or one that up to `more` others do.

    By bisection, of which half the steps are spent on the last few. -inf counts for nothing: what is wanted beyond the
    rest is left out.
    """
    low, high = np.float32(np.inf), LOWEST_SCORE
    for i in range(scores.size):
        score = scores[i]
        high = score if score > high else high
        low = score if LOWEST_SCORE < score < low else low
    if not high > LOWEST_SCORE:
        return np.float32(np.inf)
    if count_reaching(scores, sizes, high) >= wanted:
        return high
    count = count_reaching(scores, sizes, low)
    while count > wanted + more:
        middle = low + (high - low) * np.float32(0.5)
        if not low < middle < high:
            break
        found = count_reaching(scores, sizes, middle)
        if found >= wanted:
            low, count = middle, found
        else:
            high = middle
    return low


@intrinsic
def compress_reaching(typing: Any, scores: Any, blocks: Any, bar: Any, chosen: Any) -> Any:
    """`reaching` of `LANES` times `blocks` scores at an address; writes no more words than there are scores."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        scores, blocks, bar, chosen = arguments
        bars, lanes = broadcast(builder, bar), ir.Constant(INT32_LANES, list(range(LANES)))
        mask = ir.VectorType(ir.IntType(1), LANES)
        kind = ir.FunctionType(INT32_LANES, [INT32_LANES, INT32_LANES, mask])
        compress = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.mask.compress.v16i32")
        bits = ir.IntType(LANES)
        ones = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bits, [bits]), f"llvm.ctpop.i{LANES}")
        count = cgutils.alloca_once_value(builder, blocks.type(0))
        with cgutils.for_range(builder, blocks) as loop:
            reach = builder.fcmp_ordered(">=", load_value(builder, scores, FLOAT32_LANES, loop.index), bars)
            start = builder.trunc(builder.mul(loop.index, blocks.type(LANES)), INT32)
            positions = builder.add(broadcast(builder, start), lanes)
            before = builder.load(count)
            place = builder.gep(builder.inttoptr(chosen, INT32.as_pointer()), [before])
            kept = builder.call(compress, [positions, ir.Constant(INT32_LANES, [0] * LANES), reach])
            builder.store(kept, builder.bitcast(place, INT32_LANES.as_pointer())).align = 4
            more = builder.zext(builder.call(ones, [builder.bitcast(reach, bits)]), before.type)
            builder.store(builder.add(before, more), count)
        return builder.load(count)

    return types.intp(types.intp, types.intp, types.float32, types.intp), generate


def select_one_by_one(scores: FloatArray, bar: np.float32, chosen: Ints) -> int:
    """As `reaching`, for any processor."""
    count = 0
    for i in range(scores.size):
        if scores[i] >= bar:
            chosen[count] = i
            count += 1
    return count


def select_by_lanes(scores: FloatArray, bar: np.float32, chosen: Ints) -> int:
    """Positions of the `scores` [n] that reach a bar, ascending, in `chosen` [n]; returns how many."""
    blocks = scores.size // LANES
    count: int = compress_reaching(scores.ctypes.data, blocks, bar, chosen.ctypes.data)
    for i in range(LANES * blocks, scores.size):
        if scores[i] >= bar:
            chosen[count] = i
            count += 1
    return count


select_reaching = compile_loop(
    select_by_lanes if VNNI else select_one_by_one
)  # a branch on every score takes ten times as long


@compile_loop
def select_best(scores: FloatArray, wanted: int, chosen: Ints) -> int:
    """Positions of the `wanted` best `scores` [n], ascending; returns how many, more where some are equal.

    The best of every `STRIP` scores are compared first: as many scores reach a bar as such peaks do, and not many
    more; those few are compared among each other.
    """
    if not scores.size:
        return 0
    length = -(-scores.size // STRIP_SCORES)
    peaks = scores[:length].copy()
    for start in range(length, scores.size, length):
        part = scores[start : start + length]
        for i in range(part.size):
            peaks[i] = part[i] if part[i] > peaks[i] else peaks[i]
    rough = find_threshold(peaks, NO_SIZES, wanted, wanted // SURPLUS_DIVISOR)
    if count_reaching(peaks, NO_SIZES, rough) < wanted:  # then all scores are compared
        rough = find_threshold(scores, NO_SIZES, scores.size, 0)
    near = select_reaching(scores, rough, chosen)
    values = np.empty(near, np.float32)
    for i in range(near):
        values[i] = scores[chosen[i]]
    bar, count = find_threshold(values, NO_SIZES, wanted, 0), 0
    for i in range(near):
        if values[i] >= bar:
            chosen[count] = chosen[i]
            count += 1
    return count
