"""What the loops of plan `grouped` read, handed to them as one array of addresses.

A call pays .15 us for each array that it hands over, and ten times that where the caches know nothing of them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from shortlist.core.results import FloatArray, IdArray
from shortlist.kernels.primitives.arrays import Ints
from shortlist.kernels.primitives.jit import compile_loop
from shortlist.kernels.primitives.vnni import Bytes

MAX_AXES = 4
KINDS: dict[str, npt.DTypeLike] = {"Bytes": np.uint8, "FloatArray": np.float32, "IdArray": np.int64, "Ints": np.int32}


class Tables(NamedTuple):
    """G groups of classes, B blocks of `LANES` and fewer, their rows in blocks, the last of a group filled up.

    projection: [W / LANES, d / 4, LANES, 4], projection_scale: [W]. tail: [d]. centres [., c / 4, LANES, 4],
    centre_scale [., LANES], reach [G], sizes [G], blocks [G + 1], where they begin: of groups. block_rows: [B, c],
    whole lines, block_scale, block_reach, firsts, filled: [B], of blocks; firsts are positions, filled says how many
    classes. previews [B, .]: each block's as `in_records` lays them, steps [2]: lines in int8 and in 2 bits of a block.
    bias: [B LANES] or empty. order: [m] ids.
    codes [m, .] and code_scale [m]: int8 rows, filled up to whole lines. code_bias: [m] or empty. rows: [V, d].
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


def list_addresses(tables: Tables) -> IdArray:
    """[fields, 1 + MOST_AXES]: where each table begins, and its shape; raises TypeError where one would be misread."""
    arrays: tuple[npt.NDArray[Any], ...] = tables
    found = np.zeros((len(arrays), 1 + MAX_AXES), np.int64)
    for line, table, name in zip(found, arrays, tables._fields, strict=True):
        if not table.flags.c_contiguous or table.dtype != kind_of(name):
            raise TypeError(f"table {name} is {table.dtype}, not an array of {kind_of(name)} in one piece")
        line[0], line[1 : 1 + table.ndim] = table.ctypes.data, table.shape
    return found


def kind_of(name: str) -> npt.DTypeLike:
    """What loops take the numbers of a table for."""
    return KINDS[str(Tables.__annotations__[name].__forward_arg__)]


@intrinsic
def cast_pointer(typing: Any, address: Any) -> Any:
    """An address as what `carray` takes."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), generate


@compile_loop
def read_floats(at: IdArray) -> FloatArray:
    """The vector at an address."""
    found: FloatArray = carray(cast_pointer(at[0]), (at[1],), np.float32)
    return found


@compile_loop
def read_float_rows(at: IdArray) -> FloatArray:
    """The matrix at an address."""
    found: FloatArray = carray(cast_pointer(at[0]), (at[1], at[2]), np.float32)
    return found


@compile_loop
def read_ints(at: IdArray) -> Ints:
    """The vector at an address."""
    found: Ints = carray(cast_pointer(at[0]), (at[1],), np.int32)
    return found


@compile_loop
def read_longs(at: IdArray) -> IdArray:
    """The vector at an address."""
    found: IdArray = carray(cast_pointer(at[0]), (at[1],), np.int64)
    return found


@compile_loop
def read_byte_rows(at: IdArray) -> Bytes:
    """The matrix at an address."""
    found: Bytes = carray(cast_pointer(at[0]), (at[1], at[2]), np.uint8)
    return found


@compile_loop
def read_byte_blocks(at: IdArray) -> Bytes:
    """The blocks at an address."""
    found: Bytes = carray(cast_pointer(at[0]), (at[1], at[2], at[3], at[4]), np.uint8)
    return found


@compile_loop
def read_tables(at: IdArray) -> Tables:
    """The tables whose `addresses` these are."""
    return Tables(
        projection=read_byte_blocks(at[0]),
        projection_scale=read_floats(at[1]),
        tail=read_floats(at[2]),
        centres=read_byte_blocks(at[3]),
        centre_scale=read_floats(at[4]),
        reach=read_floats(at[5]),
        sizes=read_ints(at[6]),
        blocks=read_longs(at[7]),
        block_rows=read_byte_rows(at[8]),
        block_scale=read_floats(at[9]),
        block_reach=read_floats(at[10]),
        firsts=read_ints(at[11]),
        filled=read_ints(at[12]),
        previews=read_byte_rows(at[13]),
        steps=read_ints(at[14]),
        bias=read_floats(at[15]),
        order=read_longs(at[16]),
        codes=read_byte_rows(at[17]),
        code_scale=read_floats(at[18]),
        code_bias=read_floats(at[19]),
        rows=read_float_rows(at[20]),
    )
