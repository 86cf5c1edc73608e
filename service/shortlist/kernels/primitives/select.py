"""Select the n largest of many scores: thresholds are found by bisection, which vectorises where sorting does not."""

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
from .layout import LANES
from .vnni import FLOAT32_LANES, INT32, INT32_LANES, VNNI, broadcast, load_value

LOWEST_SCORE = np.float32(-np.inf)
STRIP_SCORES = 8  # of which only the best is compared at first
SURPLUS_DIVISOR = 32  # where a later stage looks closer, a 32nd more than asked for may be selected
NO_SIZES = np.empty(0, np.int32)  # every size is 1


@compile_loop
def count_reaching(scores: FloatArray, sizes: Ints, threshold: np.float32) -> np.int32:
    """Return the sum of `sizes` [n] over the `scores` [n] that are `threshold` or more."""
    count = np.int32(0)
    if sizes.size:
        for i in range(scores.size):
            count += sizes[i] if scores[i] >= threshold else np.int32(0)
    else:
        for i in range(scores.size):
            count += np.int32(scores[i] >= threshold)
    return count


@compile_loop
def find_threshold(scores: FloatArray, sizes: Ints, target: int, surplus: int) -> np.float32:
    """Find the highest threshold that `scores` [n] with `sizes` of `target` or more in sum reach, by bisection.

    surplus: a lower threshold will do if the sum stays within `target` + `surplus`, which spares half of the steps.
    Scores of -inf are never counted, so the sum may fall short of `target`.
    """
    low, high = np.float32(np.inf), LOWEST_SCORE
    for i in range(scores.size):
        score = scores[i]
        high = score if score > high else high
        low = score if LOWEST_SCORE < score < low else low
    if not high > LOWEST_SCORE:
        return np.float32(np.inf)
    if count_reaching(scores, sizes, high) >= target:
        return high
    count = count_reaching(scores, sizes, low)
    while count > target + surplus:
        middle = low + (high - low) * np.float32(0.5)
        if not low < middle < high:
            break
        middle_count = count_reaching(scores, sizes, middle)
        if middle_count >= target:
            low, count = middle, middle_count
        else:
            high = middle
    return low


@intrinsic
def compress_reaching(typing: Any, scores: Any, blocks: Any, threshold: Any, positions: Any) -> Any:
    """Do what `select_reaching` says, for `LANES` * `blocks` scores at an address, by AVX-512's VPCOMPRESSD."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        scores, blocks, threshold, positions = arguments
        thresholds, lanes = broadcast(builder, threshold), ir.Constant(INT32_LANES, list(range(LANES)))
        mask = ir.VectorType(ir.IntType(1), LANES)
        kind = ir.FunctionType(INT32_LANES, [INT32_LANES, INT32_LANES, mask])
        compress = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.mask.compress.v16i32")
        bits = ir.IntType(LANES)
        ones = cgutils.get_or_insert_function(builder.module, ir.FunctionType(bits, [bits]), f"llvm.ctpop.i{LANES}")
        count = cgutils.alloca_once_value(builder, blocks.type(0))
        with cgutils.for_range(builder, blocks) as loop:
            reach = builder.fcmp_ordered(">=", load_value(builder, scores, FLOAT32_LANES, loop.index), thresholds)
            start = builder.trunc(builder.mul(loop.index, blocks.type(LANES)), INT32)
            lane_positions = builder.add(broadcast(builder, start), lanes)
            before = builder.load(count)
            place = builder.gep(builder.inttoptr(positions, INT32.as_pointer()), [before])
            compressed = builder.call(compress, [lane_positions, ir.Constant(INT32_LANES, [0] * LANES), reach])
            builder.store(compressed, builder.bitcast(place, INT32_LANES.as_pointer())).align = 4
            more = builder.zext(builder.call(ones, [builder.bitcast(reach, bits)]), before.type)
            builder.store(builder.add(before, more), count)
        return builder.load(count)

    return types.intp(types.intp, types.intp, types.float32, types.intp), generate


def select_one_by_one(scores: FloatArray, threshold: np.float32, positions: Ints) -> int:
    """Do what `select_by_lanes` says, on any processor."""
    count = 0
    for i in range(scores.size):
        if scores[i] >= threshold:
            positions[count] = i
            count += 1
    return count


def select_by_lanes(scores: FloatArray, threshold: np.float32, positions: Ints) -> int:
    """Write the positions of `scores` [n] of `threshold` or more, ascending, to `positions` [n]; returns how many."""
    blocks = scores.size // LANES
    count: int = compress_reaching(scores.ctypes.data, blocks, threshold, positions.ctypes.data)
    for i in range(LANES * blocks, scores.size):
        if scores[i] >= threshold:
            positions[count] = i
            count += 1
    return count


select_reaching = compile_loop(
    select_by_lanes if VNNI else select_one_by_one
)  # a branch on every score takes ten times as long


@compile_loop
def select_best(scores: FloatArray, target: int, positions: Ints) -> int:
    """Write the positions of the `target` best `scores` [n], ascending, to `positions`; returns how many.

    They are more than `target` where scores are equal. The best of every `STRIP_SCORES` scores are compared first: at
    least as many scores as such peaks reach a threshold, and not many more, so only those few are compared exactly.
    """
    if not scores.size:
        return 0
    length = -(-scores.size // STRIP_SCORES)
    peaks = scores[:length].copy()
    for start in range(length, scores.size, length):
        part = scores[start : start + length]
        for i in range(part.size):
            peaks[i] = part[i] if part[i] > peaks[i] else peaks[i]
    rough = find_threshold(peaks, NO_SIZES, target, target // SURPLUS_DIVISOR)
    if count_reaching(peaks, NO_SIZES, rough) < target:  # then all scores are compared
        rough = find_threshold(scores, NO_SIZES, scores.size, 0)
    near = select_reaching(scores, rough, positions)
    values = np.empty(near, np.float32)
    for i in range(near):
        values[i] = scores[positions[i]]
    threshold, count = find_threshold(values, NO_SIZES, target, 0), 0
    for i in range(near):
        if values[i] >= threshold:
            positions[count] = positions[i]
            count += 1
    return count
