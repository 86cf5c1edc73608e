"""Products of bytes, compiled by numba: unsigned weights times signed contexts, summed in 32 bits.

With AVX-512 VNNI 64 products are one instruction, written here in LLVM's terms, since compilers do not find it in
loops. Plain loops make a search 20 times as long, longer than by a graph: `VNNI` says whether to begin at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.core.results import FloatArray

from .jit import compile_loop

LANES = 16  # classes whose products are summed side by side
LANE_BYTES = 4  # bytes of a class that one instruction multiplies and adds
ACCUMULATORS = 4  # sums of an instruction that run side by side: one has to wait for the last
LINE_BYTES = LANES * LANE_BYTES  # bytes that an instruction reads
ZERO_POINT = 128  # weights are kept as unsigned bytes around it
TWO_BIT_MAX = 3  # a weight of 2 bits u stands for the odd number 2 u - 3
WEIGHTS_PER_BYTE = 4  # weights of 2 bits in a byte
TWO_BIT_COLUMNS = WEIGHTS_PER_BYTE * LANE_BYTES  # of 2 bits that are read at once
VNNI = bool(binding.get_host_cpu_features().get("avx512vnni"))

Bytes = npt.NDArray[np.uint8]

INT8, INT32 = ir.IntType(8), ir.IntType(32)
INT32_LANES, INT8_LINE = ir.VectorType(INT32, LANES), ir.VectorType(INT8, LANES * LANE_BYTES)
FLOAT32_LANES = ir.VectorType(ir.FloatType(), LANES)


def add_products(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """16 sums of four products of bytes each, added to `sums`: VPDPBUSD."""
    kind = ir.FunctionType(INT32_LANES, [INT32_LANES, INT8_LINE, INT8_LINE])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
    return builder.call(function, [sums, unsigned, signed])


def load_value(builder: Any, address: Any, kind: Any, index: Any) -> Any:
    """The `index`-th value of a type at an address of any alignment."""
    value = builder.load(builder.gep(builder.inttoptr(address, kind.as_pointer()), [index]))
    value.align = 1
    return value


def broadcast(builder: Any, value: Any) -> Any:
    """A word or a number, `LANES` times."""
    undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(INT32_LANES, [0] * LANES))


def broadcast_bytes(builder: Any, word: Any) -> Any:
    """A 32-bit word in all lanes, as bytes."""
    return builder.bitcast(broadcast(builder, word), INT8_LINE)


def sum_products(builder: Any, count: Any, pair: Callable[[Any], tuple[Any, Any]]) -> Any:
    """The sums of `count` instructions on pair(i), `CHAINS` of them at a time, which do not wait for each other."""
    zero = ir.Constant(INT32_LANES, [0] * LANES)
    totals = [cgutils.alloca_once_value(builder, zero) for _ in range(ACCUMULATORS)]
    chains = count.type(ACCUMULATORS)
    with cgutils.for_range(builder, builder.udiv(count, chains)) as loop:
        for i, total in enumerate(totals):
            at = builder.add(builder.mul(loop.index, chains), count.type(i))
            builder.store(add_products(builder, builder.load(total), *pair(at)), total)
    with cgutils.for_range(builder, builder.urem(count, chains)) as loop:
        at = builder.add(builder.sub(count, builder.urem(count, chains)), loop.index)
        builder.store(add_products(builder, builder.load(totals[0]), *pair(at)), totals[0])
    return reduce(builder.add, [builder.load(total) for total in totals])


@intrinsic
def vnni_score_block(typing: Any, weights: Any, context: Any, count: Any, shift: Any, scale: Any, scores: Any) -> Any:
    """See `block_scores`: addresses, the number of instructions, and what is taken from the sums."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, context, count, shift, scale, scores = arguments

        def pair(at: Any) -> tuple[Any, Any]:
            return load_value(builder, weights, INT8_LINE, at), broadcast_bytes(
                builder, load_value(builder, context, INT32, at)
            )

        first = ir.Constant(INT32, 0)
        total = builder.sub(sum_products(builder, count, pair), broadcast(builder, builder.trunc(shift, INT32)))
        scaled = builder.fmul(builder.sitofp(total, FLOAT32_LANES), load_value(builder, scale, FLOAT32_LANES, first))
        builder.store(scaled, builder.inttoptr(scores, FLOAT32_LANES.as_pointer())).align = 1
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.intp] * 6), generate


@intrinsic
def vnni_add_two_bit_scores(
    typing: Any, weights: Any, context: Any, lines: Any, shift: Any, scale: Any, scores: Any
) -> Any:
    """See `add_two_bit_scores`: addresses, the number of lines, and what is taken from the sums."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, context, lines, shift, scale, scores = arguments
        totals = [
            cgutils.alloca_once_value(builder, ir.Constant(INT32_LANES, [0] * LANES)) for _ in range(WEIGHTS_PER_BYTE)
        ]
        with cgutils.for_range(builder, lines) as loop:
            line = load_value(builder, weights, INT8_LINE, loop.index)
            for i, total in enumerate(totals):
                part = builder.and_(line, ir.Constant(INT8_LINE, [TWO_BIT_MAX << 2 * i] * LINE_BYTES))
                step = builder.add(builder.mul(loop.index, lines.type(WEIGHTS_PER_BYTE)), lines.type(i))
                signed = broadcast_bytes(builder, load_value(builder, context, INT32, step))
                builder.store(add_products(builder, builder.load(total), part, signed), total)
        places = [
            ir.Constant(INT32_LANES, [2 * i] * LANES) for i in range(WEIGHTS_PER_BYTE)
        ]  # sums are shifted once, weights never
        sums = [builder.ashr(builder.load(total), place) for total, place in zip(totals, places, strict=True)]
        found = reduce(builder.add, sums)
        centred = builder.sub(builder.add(found, found), broadcast(builder, builder.trunc(shift, INT32)))
        first = ir.Constant(INT32, 0)
        scaled = builder.fmul(builder.sitofp(centred, FLOAT32_LANES), load_value(builder, scale, FLOAT32_LANES, first))
        summed = builder.fadd(load_value(builder, scores, FLOAT32_LANES, first), scaled)
        builder.store(summed, builder.inttoptr(scores, FLOAT32_LANES.as_pointer())).align = 1
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.intp] * 6), generate


@intrinsic
def vnni_multiply_row(typing: Any, weights: Any, context: Any, count: Any) -> Any:
    """The sum of all products of `count` times `STEP` bytes at two addresses."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, context, count = arguments
        total = sum_products(
            builder, count, lambda at: tuple(load_value(builder, of, INT8_LINE, at) for of in (weights, context))
        )
        kind = ir.FunctionType(INT32, [INT32_LANES])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.add.v16i32")
        return builder.call(function, [total])

    return types.int32(types.intp, types.intp, types.intp), generate


@intrinsic
def vnni_multiply_pair(typing: Any, weights: Any, first: Any, second: Any, count: Any, sums: Any) -> Any:
    """See `pair_products`: addresses, and the number of instructions, which is even."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, first, second, count, sums = arguments
        zero = ir.Constant(INT32_LANES, [0] * LANES)
        chains = [[cgutils.alloca_once_value(builder, zero) for _ in range(2)] for _ in range(2)]
        two = count.type(2)
        with cgutils.for_range(builder, builder.udiv(count, two)) as loop:
            for i, totals in enumerate(chains):
                at = builder.add(builder.mul(loop.index, two), count.type(i))
                unsigned = load_value(builder, weights, INT8_LINE, at)
                for context, total in zip((first, second), totals, strict=True):
                    signed = broadcast_bytes(builder, load_value(builder, context, INT32, at))
                    builder.store(add_products(builder, builder.load(total), unsigned, signed), total)
        for i in range(2):
            place = builder.gep(builder.inttoptr(sums, INT32_LANES.as_pointer()), [count.type(i)])
            builder.store(reduce(builder.add, [builder.load(totals[i]) for totals in chains]), place).align = 1
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.intp] * 5), generate


@intrinsic
def prefetch_line(typing: Any, address: Any) -> Any:
    """Ask for the cache line at an address, without waiting for it; any address will do."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read, keep, data = ir.Constant(flag, 0), ir.Constant(flag, 3), ir.Constant(flag, 1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return ir.Constant(pointer, None)

    return types.void(types.intp), generate


@compile_loop
def prefetch(address: int, size: int) -> None:
    """Ask for `size` bytes at an address before they are needed: what lies anywhere is slow to come, not to read."""
    for line in range(0, size, LINE_BYTES):
        prefetch_line(address + line)


# Addresses, not arrays: handing an array on costs as much as the products of a row.


@compile_loop
def score_block(weights: int, levels: int, steps: int, shift: int, scale: int, scores: int) -> None:
    """(weights @ levels - shift) * scale, in int32 and float32, of one block [steps, LANES, BYTES] at an address.

    levels: [steps * BYTES] int8, scale, scores: [LANES] float32, at theirs.
    """
    vnni_score_block(weights, levels, steps, shift, scale, scores)


@compile_loop
def add_two_bit_scores(weights: int, levels: int, lines: int, shift: int, scale: int, scores: int) -> None:
    """Add (2 weights @ levels - shift) * scale of one block of 2-bit weights [lines, LANES, BYTES], see `in_two_bits`.

    levels: [lines * QUARTERS * BYTES] int8, scale, scores: [LANES] float32, at addresses.
    """
    vnni_add_two_bit_scores(weights, levels, lines, shift, scale, scores)


@compile_loop
def multiply_row(weights: int, levels: int, steps: int) -> np.int32:
    """The product of `steps` times `STEP` bytes at two addresses."""
    total: np.int32 = vnni_multiply_row(weights, levels, steps)
    return total


@compile_loop
def multiply_pair(weights: Bytes, block: int, contexts: npt.NDArray[np.int8], sums: npt.NDArray[np.int32]) -> None:
    """Products of a block of `weights` [n, W / BYTES, LANES, BYTES] with both `contexts` [2, W or more], in `sums`.

    sums: [2 LANES]. W / BYTES is even: each of the weights is loaded once.
    """
    steps, width = weights.shape[1], contexts.shape[1]
    start = contexts.ctypes.data
    vnni_multiply_pair(weights.ctypes.data + block * steps * LINE_BYTES, start, start + width, steps, sums.ctypes.data)


def pad_to_lines(values: Bytes) -> Bytes:
    """[m, W] -> [m, W or a few more]: `values`, then zeros, in rows that begin and end with cache lines."""
    count, width = values.shape
    wide = allocate_lines((count, -(-width // LINE_BYTES) * LINE_BYTES))
    wide[:, :width], wide[:, width:] = values, 0
    return wide


def allocate_lines(shape: tuple[int, ...]) -> Bytes:
    """An array at an address that a cache line begins at; a large one gets large pages where the system has any."""
    size = math.prod(shape)
    memory = np.empty(size + LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % LINE_BYTES
    return memory[start : start + size].reshape(shape)


def arrange_blocks(values: Bytes) -> Bytes:
    """[LANES n, W] -> [n, W / BYTES, LANES, BYTES], each block at an address that a cache line begins at."""
    count, width = values.shape
    blocks = values.reshape(count // LANES, LANES, width // LANE_BYTES, LANE_BYTES).transpose(0, 2, 1, 3)
    aligned = allocate_lines(blocks.shape)
    aligned[...] = blocks
    return aligned


def arrange_records(previews: Bytes, scale: FloatArray, fine: Bytes, fine_scale: FloatArray) -> Bytes:
    """Blocks of two matrices as one line of bytes each, [n, .]: what is read together lies together.

    scale, fine_scale: [LANES n], a line each, then previews [n, ., LANES, BYTES] as `in_blocks` lays them, then fine
    [n, ., LANES, BYTES] as `in_two_bits` does.
    """
    parts = scale.view(np.uint8), fine_scale.view(np.uint8), previews, fine
    lines = [part.reshape(len(previews), part.size // len(previews)) for part in parts]
    records = allocate_lines((len(previews), sum(line.shape[1] for line in lines)))
    np.concatenate(lines, axis=1, out=records)
    return records


def pack_two_bits(values: npt.NDArray[np.int8]) -> Bytes:
    """-3, -1, 1 or 3 [LANES n, W], W a multiple of `COLUMNS` -> [n, W / COLUMNS, LANES, BYTES], 2 bits each.

    The lowest bits of a line are a step of four columns, the next two are the next.
    """
    steps = arrange_blocks(((values.astype(np.int16) + TWO_BIT_MAX) // 2).astype(np.uint8))
    packed = allocate_lines((len(steps), steps.shape[1] // WEIGHTS_PER_BYTE, LANES, LANE_BYTES))
    packed[...] = reduce(np.bitwise_or, [steps[:, i::WEIGHTS_PER_BYTE] << 2 * i for i in range(WEIGHTS_PER_BYTE)])
    return packed
