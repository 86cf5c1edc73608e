"""The previews of plan `grouped` as compiled loops read them: block by block, first columns apart from the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import IdArray
from shortlist.kernels.primitives.arrays import Arrays
from shortlist.kernels.primitives.layout import (
    LANE_BYTES,
    TWO_BIT_COLUMNS,
    Bytes,
    allocate_lines,
    arrange_blocks,
    arrange_records,
    pack_two_bits,
    pad_columns,
    place_in_blocks,
    scatter_rows,
    shift_to_unsigned,
)
from shortlist.runtime.shared_tables import share_table

CHUNK_BLOCKS = 1 << 11  # that are laid out at once, so few that what is made on the way stays in the cache
MIN_COARSE_COLUMNS = 64  # of 2 bits, as in the models' `grouped`


class Blocks(NamedTuple):
    """Some blocks: how many, the positions of their classes, and the places of these among their lanes."""

    size: int
    positions: slice
    places: IdArray

    def scatter(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Put their classes' values [n, ...] at their places among the lanes; there are zeros in the others."""
        return scatter_rows(values, self.places, self.size)


def lay_out_previews(digest: str, arrays: Arrays) -> dict[str, Any]:
    """Lay out the previews of classes, as `Tables` has them; lanes that a block does not fill are zeros.

    digest: of the bundle's manifest. Columns that all classes of opened groups are previewed by lie apart from those
    that only the best blocks are, so that a search reads either in one run.
    """
    starts, bias = arrays["block_starts"], arrays.get("bias")
    return {
        "previews": share_table(digest, "previews", partial(join_blocks, starts, partial(join_records, arrays))),
        "fine_previews": share_table(digest, "fine-previews", partial(join_blocks, starts, partial(pack_rest, arrays))),
        "bias": None if bias is None else scatter_rows(bias, place_in_blocks(starts), len(starts) - 1),
    }


def join_blocks(starts: IdArray, lay_out: Callable[[Blocks], Bytes]) -> Bytes:
    """Lay out all blocks, which begin at positions `starts` [B + 1], by what lays out some: [B, bytes of a block]."""
    parts = [list_blocks(starts[first : first + CHUNK_BLOCKS + 1]) for first in range(0, len(starts) - 1, CHUNK_BLOCKS)]
    tables = map(lay_out, parts)
    first = next(tables)
    joined, done = allocate_lines((len(starts) - 1, first.shape[1])), len(first)
    joined[:done] = first
    for table in tables:
        joined[done : done + len(table)] = table
        done += len(table)
    return joined


def list_blocks(starts: IdArray) -> Blocks:
    """The blocks that begin at positions `starts` [n + 1], the last of which is the end."""
    return Blocks(len(starts) - 1, slice(int(starts[0]), int(starts[-1])), place_in_blocks(starts - starts[0]))


def join_records(arrays: Arrays, blocks: Blocks) -> Bytes:
    """Join the scales of some blocks, what is added to their previews, and the columns of the first previews."""
    scales = arrays["scale"], arrays.get("fine_scale", arrays["scale"]), arrays["preview_raise"]
    wide = shift_to_unsigned(pad_columns(arrays["preview"][blocks.positions], LANE_BYTES))
    return arrange_records(
        blocks.size,
        *(blocks.scatter(scale[blocks.positions]) for scale in scales),
        arrange_blocks(blocks.scatter(wide)),
        pack_fine(arrays, blocks, slice(count_coarse_columns(arrays))),
    )


def pack_rest(arrays: Arrays, blocks: Blocks) -> Bytes:
    """Pack the other columns of some blocks."""
    packed = pack_fine(arrays, blocks, slice(count_coarse_columns(arrays), None))
    return packed.reshape(blocks.size, packed.size // blocks.size)


def pack_fine(arrays: Arrays, blocks: Blocks, columns: slice) -> Bytes:
    """Pack some of the columns in 2 bits, of some blocks, in whole lines."""
    fine = read_fine(arrays)[blocks.positions, columns]
    return pack_two_bits(blocks.scatter(pad_columns(fine, TWO_BIT_COLUMNS)))


def read_fine(arrays: Arrays) -> npt.NDArray[np.int8]:
    """The columns [m, W] in 2 bits, of which there may be none."""
    return arrays.get("fine", np.empty((len(arrays["preview"]), 0), np.int8))


def count_coarse_columns(arrays: Arrays) -> int:
    """How many columns of 2 bits the first previews have: those that groups are compared by, some at least."""
    wide, compared = (-(-arrays[name].shape[1] // LANE_BYTES) * LANE_BYTES for name in ("preview", "group_codes"))
    lines, columns = -(-max(compared - wide, MIN_COARSE_COLUMNS) // TWO_BIT_COLUMNS), read_fine(arrays).shape[1]
    return int(min(lines * TWO_BIT_COLUMNS, columns))
