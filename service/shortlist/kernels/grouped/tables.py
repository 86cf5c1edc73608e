"""The tables that the loops of plan `grouped` read, passed to them as one array of addresses and shapes.

A call pays .15 us for each array that it passes, and ten times that where the array's header is not in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.core.results import FloatArray, IdArray
from shortlist.kernels.primitives.arrays import Ints
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.layout import Bytes

MAX_AXES = 4


class Tables(NamedTuple):
    """The head's arrays: G groups hold B blocks of at most `LANES` classes; positions count m classes group by group.

    The projection and the tail:
        projection: [W / LANES, d / 4, LANES, 4]. projection_scale: [W]. tail: [d].
    Groups, which lie in blocks of their own, of 16 groups each:
        centres: [., c / 4, LANES, 4]. centre_scale: [., LANES]. reach: [G]. sizes: [G], how many classes.
        blocks: [G + 1], at which block each group begins.
    Blocks:
        block_rows: [B, c], whole lines. block_scale, block_reach: [B]. firsts: [B], positions of their first classes.
        filled: [B], how many classes.
        previews: [B, bytes], as of `arrange_records`. steps: [2], lines of a block in int8 and in 2 bits.
        bias: [B LANES] or empty.
    Classes:
        order: [m], ids by position. codes: [m, .], int8 rows in whole lines. code_scale: [m]. code_bias: [m] or empty.
        rows: [V, d] by id.
    """

    projection: Bytes
    projection_scale: FloatArray
    tail: FloatArray
    centres: Bytes
    centre_scale: FloatArray
    reach: FloatArray
    sizes: Ints
    blocks: IdArray
    block_rows: Bytes
    block_scale: FloatArray
    block_reach: FloatArray
    firsts: Ints
    filled: Ints
    previews: Bytes
    steps: Ints
    bias: FloatArray
    order: IdArray
    codes: Bytes
    code_scale: FloatArray
    code_bias: FloatArray
    rows: FloatArray


# Arrays of every other name are float32.
TABLE_DTYPES: Mapping[str, npt.DTypeLike] = (
    dict.fromkeys(Tables._fields, np.float32)
    | dict.fromkeys(("projection", "centres", "block_rows", "previews", "codes"), np.uint8)
    | dict.fromkeys(("sizes", "firsts", "filled", "steps"), np.int32)
    | dict.fromkeys(("blocks", "order"), np.int64)
)
TABLE_LINES: Any = Tables._make(range(len(Tables._fields)))  # which line of the addresses is whose, by the field's name


def list_addresses(tables: Tables) -> IdArray:
    """List where each table begins and its shape, [fields, 1 + MAX_AXES]; `tables` has to outlive the list.

    Raises TypeError for a table that the loops would misread: not contiguous, or of another dtype.
    """
    arrays: tuple[npt.NDArray[Any], ...] = tables
    addresses = np.zeros((len(arrays), 1 + MAX_AXES), np.int64)
    for line, table, name in zip(addresses, arrays, Tables._fields, strict=True):
        if not table.flags.c_contiguous or table.dtype != TABLE_DTYPES[name]:
            raise TypeError(f"table {name} is {table.dtype}, not an array of {TABLE_DTYPES[name]} in one piece")
        line[0], line[1 : 1 + table.ndim] = table.ctypes.data, table.shape
    return addresses


@intrinsic
def cast_pointer(typing: Any, address: Any) -> Any:
    """Convert an address to the pointer that `carray` takes."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@compile_loop
def read_floats(line: IdArray) -> FloatArray:
    table: FloatArray = carray(cast_pointer(line[0]), (line[1],), np.float32)
    return table


@compile_loop
def read_float_rows(line: IdArray) -> FloatArray:
    table: FloatArray = carray(cast_pointer(line[0]), (line[1], line[2]), np.float32)
    return table


@compile_loop
def read_ints(line: IdArray) -> Ints:
    table: Ints = carray(cast_pointer(line[0]), (line[1],), np.int32)
    return table


@compile_loop
def read_longs(line: IdArray) -> IdArray:
    table: IdArray = carray(cast_pointer(line[0]), (line[1],), np.int64)
    return table


@compile_loop
def read_byte_rows(line: IdArray) -> Bytes:
    table: Bytes = carray(cast_pointer(line[0]), (line[1], line[2]), np.uint8)
    return table


@compile_loop
def read_byte_blocks(line: IdArray) -> Bytes:
    table: Bytes = carray(cast_pointer(line[0]), (line[1], line[2], line[3], line[4]), np.uint8)
    return table


@compile_loop
def read_tables(addresses: IdArray) -> Tables:
    """Return the tables at the addresses that `list_addresses` gave."""
    return Tables(
        projection=read_byte_blocks(addresses[TABLE_LINES.projection]),
        projection_scale=read_floats(addresses[TABLE_LINES.projection_scale]),
        tail=read_floats(addresses[TABLE_LINES.tail]),
        centres=read_byte_blocks(addresses[TABLE_LINES.centres]),
        centre_scale=read_floats(addresses[TABLE_LINES.centre_scale]),
        reach=read_floats(addresses[TABLE_LINES.reach]),
        sizes=read_ints(addresses[TABLE_LINES.sizes]),
        blocks=read_longs(addresses[TABLE_LINES.blocks]),
        block_rows=read_byte_rows(addresses[TABLE_LINES.block_rows]),
        block_scale=read_floats(addresses[TABLE_LINES.block_scale]),
        block_reach=read_floats(addresses[TABLE_LINES.block_reach]),
        firsts=read_ints(addresses[TABLE_LINES.firsts]),
        filled=read_ints(addresses[TABLE_LINES.filled]),
        previews=read_byte_rows(addresses[TABLE_LINES.previews]),
        steps=read_ints(addresses[TABLE_LINES.steps]),
        bias=read_floats(addresses[TABLE_LINES.bias]),
        order=read_longs(addresses[TABLE_LINES.order]),
        codes=read_byte_rows(addresses[TABLE_LINES.codes]),
        code_scale=read_floats(addresses[TABLE_LINES.code_scale]),
        code_bias=read_floats(addresses[TABLE_LINES.code_bias]),
        rows=read_float_rows(addresses[TABLE_LINES.rows]),
    )
