"""Products of bytes, compiled by numba: unsigned weights times signed contexts, summed in 32 bits.

With AVX-512 VNNI 64 products are one instruction, written here in LLVM's terms, since compilers do not find it in
loops. Plain loops make a search 20 times as long, longer than by a graph: `VNNI` says whether to begin at all.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import binding, ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16  # classes whose products are summed side by side
BYTES = 4  # bytes of a class that one instruction multiplies and adds
CHAINS = 4  # sums of an instruction that run side by side: one has to wait for the last
STEP = LANES * BYTES  # bytes that an instruction reads
ZERO_POINT = 128  # weights are kept as unsigned bytes around it
VNNI = bool(binding.get_host_cpu_features().get("avx512vnni"))

Bytes = npt.NDArray[np.uint8]


def compiled(function: Callable[..., Any], *, fastmath: Any = False) -> Any:
    """`function` by numba, without the interpreter's lock; kept on disk where there is a folder for that.

    What is kept is dropped when the function's own file changes, not when one changes whose functions it calls.
    """
    try:
        return njit(nogil=True, fastmath=fastmath, cache=True)(function)
    except RuntimeError:  # none that may be written
        return njit(nogil=True, fastmath=fastmath)(function)


BYTE, WORD = ir.IntType(8), ir.IntType(32)
WORDS, VECTOR = ir.VectorType(WORD, LANES), ir.VectorType(BYTE, LANES * BYTES)


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


def spread(builder: Any, word: Any) -> Any:
    """A 32-bit word in all lanes, as bytes."""
    undefined = ir.Constant(WORDS, ir.Undefined)
    one = builder.insert_element(undefined, word, ir.Constant(WORD, 0))
    all_lanes = builder.shuffle_vector(one, undefined, ir.Constant(WORDS, [0] * LANES))
    return builder.bitcast(all_lanes, VECTOR)


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
def vnni_block(typing: Any, weights: Any, context: Any, count: Any, sums: Any) -> Any:
    """See `block_products`: addresses, and the number of instructions."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, context, count, sums = arguments

        def pair(at: Any) -> tuple[Any, Any]:
            return loaded(builder, weights, VECTOR, at), spread(builder, loaded(builder, context, WORD, at))

        total = total_of(builder, count, pair)
        builder.store(total, builder.inttoptr(sums, WORDS.as_pointer())).align = 1
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(types.intp, types.intp, types.intp, types.intp), generate


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
    """As `vnni_block`, with two contexts: each of the weights is loaded once. `count` is even."""

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


@compiled
def block_products(weights: Bytes, block: int, context: npt.NDArray[np.int8], sums: npt.NDArray[np.int32]) -> None:
    """Products of one block of `weights` [n, W / BYTES, LANES, BYTES] with `context` [W], into `sums` [LANES]."""
    steps = weights.shape[1]
    vnni_block(weights.ctypes.data + block * steps * STEP, context.ctypes.data, steps, sums.ctypes.data)


@compiled
def pair_products(weights: Bytes, block: int, contexts: npt.NDArray[np.int8], sums: npt.NDArray[np.int32]) -> None:
    """As `block_products`, with `contexts` [2, W] into `sums` [2 LANES]; W / BYTES is even."""
    steps, width = weights.shape[1], contexts.shape[1]
    start = contexts.ctypes.data
    vnni_pair(weights.ctypes.data + block * steps * STEP, start, start + width, steps, sums.ctypes.data)


@compiled
def row_product(weights: Bytes, row: int, context: npt.NDArray[np.int8]) -> np.int32:
    """The product of one row of `weights` [m, d] with `context` [d]."""
    width = weights.shape[1]
    steps = width // STEP
    total: np.int32 = vnni_row(weights.ctypes.data + row * width, context.ctypes.data, steps)
    for i in range(steps * STEP, width):
        total += np.int32(weights[row, i]) * np.int32(context[i])
    return total


def in_blocks(values: Bytes) -> Bytes:
    """[LANES n, W] -> [n, W / BYTES, LANES, BYTES], each block at an address that a cache line begins at."""
    count, width = values.shape
    blocks = values.reshape(count // LANES, LANES, width // BYTES, BYTES).transpose(0, 2, 1, 3)
    memory = np.empty(values.size + STEP, np.uint8)
    start = -memory.ctypes.data % STEP
    aligned = memory[start : start + values.size].reshape(blocks.shape)
    aligned[...] = blocks
    return aligned
