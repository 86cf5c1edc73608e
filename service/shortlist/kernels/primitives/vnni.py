"""LLVM code for products of bytes by AVX-512 VNNI: 64 products of uint8 and int8 in one instruction, VPDPBUSD.

It is written out because compilers do not find the instruction in loops; plain loops make a search 20 times as long,
longer than a graph takes. `VNNI` is True where the processor has it. Intrinsics take addresses as numba's intp.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .layout import LANE_BYTES, LANES, LINE_BYTES, TWO_BIT_MAX, WEIGHTS_PER_BYTE

ACCUMULATORS = 4  # independent sums: an instruction that adds to the sum of the last one has to wait for it
VNNI = bool(binding.get_host_cpu_features().get("avx512vnni"))


INT8, INT32 = ir.IntType(8), ir.IntType(32)
INT32_LANES, INT8_LINE = ir.VectorType(INT32, LANES), ir.VectorType(INT8, LANES * LANE_BYTES)
FLOAT32_LANES = ir.VectorType(ir.FloatType(), LANES)


def add_products(builder: Any, sums: Any, unsigned: Any, signed: Any) -> Any:
    """Emit VPDPBUSD: add four products of bytes to each of 16 `sums`."""
    kind = ir.FunctionType(INT32_LANES, [INT32_LANES, INT8_LINE, INT8_LINE])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.avx512.vpdpbusd.512")
    return builder.call(function, [sums, unsigned, signed])


def load_value(builder: Any, address: Any, kind: Any, index: Any) -> Any:
    """Emit a load of value number `index` of type `kind` at an address of any alignment."""
    value = builder.load(builder.gep(builder.inttoptr(address, kind.as_pointer()), [index]))
    value.align = 1
    return value


def broadcast(builder: Any, value: Any) -> Any:
    """Emit a vector that holds a 32-bit value `LANES` times."""
    undefined = ir.Constant(ir.VectorType(value.type, LANES), ir.Undefined)
    one = builder.insert_element(undefined, value, ir.Constant(INT32, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(INT32_LANES, [0] * LANES))


def broadcast_bytes(builder: Any, word: Any) -> Any:
    """Emit a vector of bytes that holds a 32-bit word in all lanes."""
    return builder.bitcast(broadcast(builder, word), INT8_LINE)


def sum_products(builder: Any, count: Any, pair: Callable[[Any], tuple[Any, Any]]) -> Any:
    """Emit the sum of `count` VPDPBUSD on the operands pair(i), in `ACCUMULATORS` independent sums."""
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
    """Do what `products.score_block` says; count: how many lines. shift: subtracted from the sums."""

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
    """Do what `products.add_two_bit_scores` says."""

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
        total = reduce(builder.add, sums)
        centred = builder.sub(builder.add(total, total), broadcast(builder, builder.trunc(shift, INT32)))
        first = ir.Constant(INT32, 0)
        scaled = builder.fmul(builder.sitofp(centred, FLOAT32_LANES), load_value(builder, scale, FLOAT32_LANES, first))
        summed = builder.fadd(load_value(builder, scores, FLOAT32_LANES, first), scaled)
        builder.store(summed, builder.inttoptr(scores, FLOAT32_LANES.as_pointer())).align = 1
        return ir.Constant(ir.IntType(8).as_pointer(), None)

    return types.void(*[types.intp] * 6), generate


@intrinsic
def vnni_multiply_row(typing: Any, weights: Any, context: Any, count: Any) -> Any:
    """Sum the products of `count` lines of bytes at two addresses."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        weights, context, count = arguments
        total = sum_products(
            builder, count, lambda at: tuple(load_value(builder, start, INT8_LINE, at) for start in (weights, context))
        )
        kind = ir.FunctionType(INT32, [INT32_LANES])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.vector.reduce.add.v16i32")
        return builder.call(function, [total])

    return types.int32(types.intp, types.intp, types.intp), generate


@intrinsic
def vnni_multiply_pair(typing: Any, weights: Any, first: Any, second: Any, count: Any, sums: Any) -> Any:
    """Do what `products.multiply_pair` says; count: how many lines, an even number."""

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
    """Prefetch the cache line at an address; an invalid address does no harm."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        read, keep, data = ir.Constant(flag, 0), ir.Constant(flag, 3), ir.Constant(flag, 1)
        builder.call(function, [builder.inttoptr(arguments[0], pointer), read, keep, data])
        return ir.Constant(pointer, None)

    return types.void(types.intp), generate
