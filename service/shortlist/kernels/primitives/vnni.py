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

from .jit import compiled

LANES = 16  # classes whose products are summed side by side
BYTES = 4  # bytes of a class that one instruction multiplies and adds
CHAINS = 4  # sums of an instruction that run side by side: one has to wait for the last
STEP = LANES * BYTES  # bytes that an instruction reads
ZERO_POINT = 128  # weights are kept as unsigned bytes around it
MOST = 3  # a weight of 2 bits u stands for the odd number 2 u - 3
QUARTERS = 4  # weights of 2 bits in a byte
COLUMNS = QUARTERS * BYTES  # of 2 bits that are read at once
VNNI = bool(binding.get_host_cpu_features().get("avx512vnni"))

Bytes = npt.NDArray[np.uint8]

BYTE, WORD = ir.IntType(8), ir.IntType(32)
WORDS, VECTOR = ir.VectorType(WORD, LANES), ir.VectorType(BYTE, LANES * BYTES)
FLOATS = ir.VectorType(ir.FloatType(), LANES)


def add_products(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """16 sums of four products of bytes each, added to `sums`: VPDPBUSD."""
    kind = ir.FunctionType(WORDS, [WORDS, VECTOR, VECTOR])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
    return builder.call(function, [sums, unsigned, signed])


def loaded(builder: Any, address: Any, kind: Any, index: Any) -> Any:
    """The `index`-th value of a type at an address of any alignment."""
    value = builder.load(builder.gep(builder.inttoptr(address, kind.as_pointer()), [index]))
    value.align = 1
    return value


def in_all_lanes(builder: Any, value: Any) -> Any:
    """A word or a number, `LANES` times."""
    undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(WORD, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(WORDS, [0] * LANES))


def spread(builder: Any, word: Any) -> Any:
    """A 32-bit word in all lanes, as bytes."""
    return builder.bitcast(in_all_lanes(builder, word), VECTOR)


def total_of(builder: Any, count: Any, pair: Callable[[Any], tuple[Any, Any]]) -> Any:
    """The sums of `count` instructions on pair(i), `CHAINS` of them at a time, which do not wait for each other."""
    zero = ir.Constant(WORDS, [0] * LANES)
    totals = [cgutils.alloca_once_value(builder, zero) for _ in range(CHAINS)]
    chains = count.type(CHAINS)
    with cgutils.for_range(builder, builder.udiv(count, chains)) as loop:
        for i, total in enumerate(totals):
            at = builder.add(builder.mul(loop.index, chains), count.type(i))
            builder.store(add_products(builder, builder.load(total), *pair(at)), total)
    with cgutils.for_range(builder, builder.urem(count, chains)) as loop:
        at = builder.add(builder.sub(count, builder.urem(count, chains)), loop.index)
        builder.store(add_products(builder, builder.load(totals[0]), *pair(at)), totals[0])
    return reduce(builder.add, [builder.load(total) for total in totals])


@intrinsic
def vnni_scores(typing: Any, weights: Any, context: Any, count: Any, shift: Any, scale: Any, scores: Any) -> Any:
    """See `block_scores`: addresses, the number of instructions, and what is taken from the sums."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, context, count, shift, scale, scores = arguments

        def pair(at: Any) -> tuple[Any, Any]:
            return loaded(builder, weights, VECTOR, at), spread(builder, loaded(builder, context, WORD, at))

        first = ir.Constant(WORD, 0)
        total = builder.sub(total_of(builder, count, pair), in_all_lanes(builder, builder.trunc(shift, WORD)))
        scaled = builder.fmul(builder.sitofp(total, FLOATS), loaded(builder, scale, FLOATS, first))
        builder.store(scaled, builder.inttoptr(scores, FLOATS.as_pointer())).align = 1
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.intp] * 6), generate


@intrinsic
def vnni_two_bits(typing: Any, weights: Any, context: Any, lines: Any, shift: Any, scale: Any, scores: Any) -> Any:
    """See `add_two_bit_scores`: addresses, the number of lines, and what is taken from the sums."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, context, lines, shift, scale, scores = arguments
        totals = [cgutils.alloca_once_value(builder, ir.Constant(WORDS, [0] * LANES)) for _ in range(QUARTERS)]
        with cgutils.for_range(builder, lines) as loop:
            line = loaded(builder, weights, VECTOR, loop.index)
            for i, total in enumerate(totals):
                part = builder.and_(line, ir.Constant(VECTOR, [MOST << 2 * i] * STEP))
                step = builder.add(builder.mul(loop.index, lines.type(QUARTERS)), lines.type(i))
                signed = spread(builder, loaded(builder, context, WORD, step))
                builder.store(add_products(builder, builder.load(total), part, signed), total)
        places = [ir.Constant(WORDS, [2 * i] * LANES) for i in range(QUARTERS)]  # sums are shifted once, weights never
        sums = [builder.ashr(builder.load(total), place) for total, place in zip(totals, places, strict=True)]
        found = reduce(builder.add, sums)
        centred = builder.sub(builder.add(found, found), in_all_lanes(builder, builder.trunc(shift, WORD)))
        first = ir.Constant(WORD, 0)
        scaled = builder.fmul(builder.sitofp(centred, FLOATS), loaded(builder, scale, FLOATS, first))
        summed = builder.fadd(loaded(builder, scores, FLOATS, first), scaled)
        builder.store(summed, builder.inttoptr(scores, FLOATS.as_pointer())).align = 1
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.intp] * 6), generate


@intrinsic
def vnni_row(typing: Any, weights: Any, context: Any, count: Any) -> Any:
    """The sum of all products of `count` times `STEP` bytes at two addresses."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, context, count = arguments
        total = total_of(builder, count, lambda at: tuple(loaded(builder, of, VECTOR, at) for of in (weights, context)))
        kind = ir.FunctionType(WORD, [WORDS])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.add.v16i32")
        return builder.call(function, [total])

    return types.int32(types.intp, types.intp, types.intp), generate


@intrinsic
def vnni_pair(typing: Any, weights: Any, first: Any, second: Any, count: Any, sums: Any) -> Any:
    """See `pair_products`: addresses, and the number of instructions, which is even."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, first, second, count, sums = arguments
        zero = ir.Constant(WORDS, [0] * LANES)
        chains = [[cgutils.alloca_once_value(builder, zero) for _ in range(2)] for _ in range(2)]
        two = count.type(2)
        with cgutils.for_range(builder, builder.udiv(count, two)) as loop:
            for i, totals in enumerate(chains):
                at = builder.add(builder.mul(loop.index, two), count.type(i))
                unsigned = loaded(builder, weights, VECTOR, at)
                for context, total in zip((first, second), totals, strict=True):
                    signed = spread(builder, loaded(builder, context, WORD, at))
                    builder.store(add_products(builder, builder.load(total), unsigned, signed), total)
        for i in range(2):
            place = builder.gep(builder.inttoptr(sums, WORDS.as_pointer()), [count.type(i)])
            builder.store(reduce(builder.add, [builder.load(totals[i]) for totals in chains]), place).align = 1
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.intp] * 5), generate


@intrinsic
def fetch_line(typing: Any, address: Any) -> Any:
    """Ask for the cache line at an address, without waiting for it; any address will do."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read, keep, data = ir.Constant(flag, 0), ir.Constant(flag, 3), ir.Constant(flag, 1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return ir.Constant(pointer, None)

    return types.void(types.intp), generate


@compiled
def fetch(address: int, size: int) -> None:
    """Ask for `size` bytes at an address before they are needed: what lies anywhere is slow to come, not to read."""
    for line in range(0, size, STEP):
        fetch_line(address + line)


# Addresses, not arrays: handing an array on costs as much as the products of a row.


@compiled
def block_scores(weights: int, levels: int, steps: int, shift: int, scale: int, scores: int) -> None:
    """(weights @ levels - shift) * scale, in int32 and float32, of one block [steps, LANES, BYTES] at an address.

    levels: [steps * BYTES] int8, scale, scores: [LANES] float32, at theirs.
    """
    vnni_scores(weights, levels, steps, shift, scale, scores)


@compiled
def add_two_bit_scores(weights: int, levels: int, lines: int, shift: int, scale: int, scores: int) -> None:
    """Add (2 weights @ levels - shift) * scale of one block of 2-bit weights [lines, LANES, BYTES], see `in_two_bits`.

    levels: [lines * QUARTERS * BYTES] int8, scale, scores: [LANES] float32, at addresses.
    """
    vnni_two_bits(weights, levels, lines, shift, scale, scores)


@compiled
def row_product(weights: int, levels: int, steps: int) -> np.int32:
    """The product of `steps` times `STEP` bytes at two addresses."""
    total: np.int32 = vnni_row(weights, levels, steps)
    return total


@compiled
def pair_products(weights: Bytes, block: int, contexts: npt.NDArray[np.int8], sums: npt.NDArray[np.int32]) -> None:
    """Products of a block of `weights` [n, W / BYTES, LANES, BYTES] with both `contexts` [2, W or more], in `sums`.

    sums: [2 LANES]. W / BYTES is even: each of the weights is loaded once.
    """
    steps, width = weights.shape[1], contexts.shape[1]
    start = contexts.ctypes.data
    vnni_pair(weights.ctypes.data + block * steps * STEP, start, start + width, steps, sums.ctypes.data)


def in_lines(values: Bytes) -> Bytes:
    """[m, W] -> [m, W or a few more]: `values`, then zeros, in rows that begin and end with cache lines."""
    count, width = values.shape
    wide = empty_at_a_line((count, -(-width // STEP) * STEP))
    wide[:, :width], wide[:, width:] = values, 0
    return wide


def empty_at_a_line(shape: tuple[int, ...]) -> Bytes:
    """An array at an address that a cache line begins at; a large one gets large pages where the system has any."""
    size = math.prod(shape)
    memory = np.empty(size + STEP, np.uint8)
    start = -memory.ctypes.data % STEP
    return memory[start : start + size].reshape(shape)


def in_blocks(values: Bytes) -> Bytes:
    """[LANES n, W] -> [n, W / BYTES, LANES, BYTES], each block at an address that a cache line begins at."""
    count, width = values.shape
    blocks = values.reshape(count // LANES, LANES, width // BYTES, BYTES).transpose(0, 2, 1, 3)
    aligned = empty_at_a_line(blocks.shape)
    aligned[...] = blocks
    return aligned


def in_records(previews: Bytes, scale: FloatArray, fine: Bytes, fine_scale: FloatArray) -> Bytes:
    """Blocks of two matrices as one line of bytes each, [n, .]: what is read together lies together.

    scale, fine_scale: [LANES n], a line each, then previews [n, ., LANES, BYTES] as `in_blocks` lays them, then fine
    [n, ., LANES, BYTES] as `in_two_bits` does.
    """
    parts = scale.view(np.uint8), fine_scale.view(np.uint8), previews, fine
    lines = [part.reshape(len(previews), part.size // len(previews)) for part in parts]
    records = empty_at_a_line((len(previews), sum(line.shape[1] for line in lines)))
    np.concatenate(lines, axis=1, out=records)
    return records


def in_two_bits(values: npt.NDArray[np.int8]) -> Bytes:
    """-3, -1, 1 or 3 [LANES n, W], W a multiple of `COLUMNS` -> [n, W / COLUMNS, LANES, BYTES], 2 bits each.

    The lowest bits of a line are a step of four columns, the next two are the next.
    """
    steps = in_blocks(((values.astype(np.int16) + MOST) // 2).astype(np.uint8))
    packed = empty_at_a_line((len(steps), steps.shape[1] // QUARTERS, LANES, BYTES))
    packed[...] = reduce(np.bitwise_or, [steps[:, i::QUARTERS] << 2 * i for i in range(QUARTERS)])
    return packed
