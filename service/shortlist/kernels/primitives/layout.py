"""How bytes of weights are laid out in memory, so that one VNNI instruction reads a whole cache line of them.

A block holds `LANES` classes. Its line s holds, for each of them, the weights of columns 4 s to 4 s + 3: the
instruction multiplies them with the same four bytes of a context and adds the products to 16 sums, one for each class.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray, IdArray

LANES = 16  # classes whose products one instruction sums, side by side
LANE_BYTES = 4  # bytes of each class that one instruction multiplies and adds
LINE_BYTES = LANES * LANE_BYTES  # bytes that one instruction reads: a cache line
WEIGHT_ZERO_POINT = 128  # int8 weights are stored as unsigned bytes, this much larger
TWO_BIT_MAX = 3  # a stored weight u of 2 bits stands for the odd number 2 u - 3; also the mask of its bits
WEIGHTS_PER_BYTE = 4  # of 2 bits
TWO_BIT_COLUMNS = WEIGHTS_PER_BYTE * LANE_BYTES  # columns of 2-bit weights in one line
LARGE_PAGE_BYTES = 1 << 21  # of Linux on x86-64, and on AArch64 with pages of 4 KiB
MIN_LARGE_BYTES = LARGE_PAGE_BYTES // 8  # of an array that lies in large pages

Bytes = npt.NDArray[np.uint8]


def list_first_blocks(starts: IdArray) -> IdArray:
    """List the first block [r + 1] of each part of the classes, which begin at `starts` [r + 1] and share no block."""
    return np.concatenate([[0], np.cumsum(-(-np.diff(starts) // LANES))])


def place_in_blocks(starts: IdArray) -> IdArray:
    """List the place [m] of each class among the lanes of all blocks.

    starts: [r + 1] int64, from 0 to m, where parts of the classes begin, which share no block.
    """
    shifts = LANES * list_first_blocks(starts)[:-1] - starts[:-1]
    places: IdArray = np.arange(starts[-1]) + np.repeat(shifts, np.diff(starts))
    return places


def scatter_rows(values: npt.NDArray[Any], places: IdArray, blocks: int) -> npt.NDArray[Any]:
    """Put `values` [m, ...] at their places [m] among the lanes of so many blocks, with zeros elsewhere."""
    wide = np.zeros((blocks * LANES, *values.shape[1:]), values.dtype)
    wide[places] = values
    return wide


def pad_lanes(values: npt.NDArray[Any], padding: float = 0) -> npt.NDArray[Any]:
    """Pad [n, ...] to a multiple of `LANES`."""
    return np.pad(values, ((0, -len(values) % LANES), *((0, 0) for _ in values.shape[1:])), constant_values=padding)


def pad_columns(values: npt.NDArray[Any], columns: int) -> npt.NDArray[Any]:
    """Pad [n, W] with columns of zeros to a multiple of `columns`."""
    return np.pad(values, ((0, 0), (0, -values.shape[1] % columns)))


def shift_to_unsigned(values: npt.NDArray[np.int8]) -> Bytes:
    """Convert int8 to uint8 by adding `WEIGHT_ZERO_POINT`."""
    return values.view(np.uint8) ^ np.uint8(WEIGHT_ZERO_POINT)  # the highest bit alone changes


def pad_to_lines(values: Bytes) -> Bytes:
    """Pad rows [m, W] with zeros, so that each begins at a cache line and is a multiple of LINE_BYTES long."""
    count, width = values.shape
    padded = allocate_lines((count, -(-width // LINE_BYTES) * LINE_BYTES))
    padded[:, :width], padded[:, width:] = values, 0
    return padded


def allocate_lines(shape: tuple[int, ...]) -> Bytes:
    """Allocate uint8 of this shape at the begin of a cache line, uninitialised; a large array lies in large pages.

    A search reads some hundred pages of 4 KiB after other work has evicted their translations, or three large ones.
    """
    size = math.prod(shape)
    is_large = size >= MIN_LARGE_BYTES
    memory = map_large_pages(size) if is_large else np.empty(size + LINE_BYTES, np.uint8)
    start = -memory.ctypes.data % (LARGE_PAGE_BYTES if is_large else LINE_BYTES)
    return memory[start : start + size].reshape(shape)


def map_large_pages(size: int) -> Bytes:
    """Map memory that holds `size` bytes from its first large page on; small pages where the system has no others.

    numpy asks for large pages from 4 MiB on, and begins an array anywhere.
    """
    pages = -(-size // LARGE_PAGE_BYTES) + 1
    area = mmap.mmap(-1, pages * LARGE_PAGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError, AttributeError):
        area.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(area, np.uint8)


def join_small(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Copy tables that are smaller than a large page into one piece of memory, so that they share large pages.

    tables: arrays by name, or None, which stays, as do larger ones.
    """
    small = {name: table for name, table in tables.items() if table is not None and table.nbytes < LARGE_PAGE_BYTES}
    starts = np.cumsum([0, *(-(-table.nbytes // LINE_BYTES) * LINE_BYTES for table in small.values())]).tolist()
    memory, joined = allocate_lines((starts[-1],)), {}
    for (name, table), start in zip(small.items(), starts, strict=False):
        joined[name] = memory[start : start + table.nbytes].view(table.dtype).reshape(table.shape)
        joined[name][...] = table
    return {**tables, **joined}


def arrange_blocks(values: Bytes) -> Bytes:
    """Arrange rows [LANES n, W] in blocks [n, W / LANE_BYTES, LANES, LANE_BYTES], each beginning at a cache line."""
    count, width = values.shape
    aligned = allocate_lines((count // LANES, width // LANE_BYTES, LANES, LANE_BYTES))
    words = np.ascontiguousarray(values).view(np.uint32)  # four bytes are moved at once
    aligned.view(np.uint32)[..., 0] = words.reshape(count // LANES, LANES, width // LANE_BYTES).transpose(0, 2, 1)
    return aligned


def arrange_records(blocks: int, *parts: npt.NDArray[Any]) -> Bytes:
    """Join the blocks of several arrays to records [blocks, bytes of a block of each], to be read in one run.

    parts: float32 [LANES blocks], numbers of the classes, or bytes [blocks, ., LANES, LANE_BYTES] as of
    `arrange_blocks` and `pack_two_bits`.
    """
    lines = [part.view(np.uint8).reshape(blocks, part.nbytes // blocks) for part in parts]
    records = allocate_lines((blocks, sum(line.shape[1] for line in lines)))
    np.concatenate(lines, axis=1, out=records)
    return records


def pack_two_bits(values: npt.NDArray[np.int8]) -> Bytes:
    """Pack weights -3, -1, 1, 3 [LANES n, W] into 2 bits each: [n, W / TWO_BIT_COLUMNS, LANES, LANE_BYTES].

    W is a multiple of TWO_BIT_COLUMNS. The lowest two bits of a line hold its first four columns, the next two bits the
    next four, and so on.
    """
    steps = arrange_blocks(((values + np.int8(TWO_BIT_MAX)) >> 1).view(np.uint8))
    packed = allocate_lines((len(steps), steps.shape[1] // WEIGHTS_PER_BYTE, LANES, LANE_BYTES))
    packed[...] = reduce(np.bitwise_or, [steps[:, i::WEIGHTS_PER_BYTE] << 2 * i for i in range(WEIGHTS_PER_BYTE)])
    return packed


def arrange_float_blocks(columns: FloatArray) -> FloatArray:
    """Arrange float32 columns [n, m] in blocks [m / LANES, n, LANES] of aligned lines, with zeros after the last."""
    rows, count = columns.shape
    blocks = allocate_lines((-(-count // LANES), rows, LINE_BYTES)).view(np.float32)
    blocks[...] = pad_columns(columns, LANES).reshape(rows, -1, LANES).transpose(1, 0, 2)
    return blocks
