"""LLVM code for products of bytes by AVX-512 VNNI: 64 products of uint8 and int8 in one instruction, VPDPBUSD.

It is written out because compilers do not find the instruction in loops; plain loops make a search 20 times as long,
longer than a graph takes. `VNNI` is True where the processor has it. Intrinsics take addresses as numba's intp.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from .layout import LANE_BYTES, LANES

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
