"""The tables that the search of plan `grouped` reads, passed to it as one struct of addresses and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import POINTER, Structure, c_float, c_int64, c_void_p
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray, IdArray
from shortlist.kernels.native.arguments import get_address
from shortlist.kernels.primitives.arrays import Ints
from shortlist.kernels.primitives.layout import LINE_BYTES, Bytes


class Tables(NamedTuple):
    """The head's arrays: G groups hold B blocks of at most `LANES` classes; positions count m classes group by group.

    The projection and the tail:
        projection: [W / LANES, d / 4, LANES, 4]. projection_scale: [W]. row_mean: [d], whose product with the context
        all but exact scores lack. tail: [d]. tail_terms: [t, d]. tail_term_offsets: [t].
    Groups, which lie in blocks of their own, of 16 groups each:
        centres: [., c / 4, LANES, 4]. centre_scale, centre_fine_scale: [., LANES], of the columns
        that previews have in int8, and of the others. raises, reach: [G], added before and after a product meets the
        row's scale. sizes: [G], how many classes. group_blocks: [G + 1], at which block each group begins.
    Blocks:
        firsts: [B], positions of their first classes. filled: [B], how many classes.
        previews: [B, bytes], as of `arrange_records`: scales of the int8 weights and of those of 2 bits, what is added
        in units of the row's scale, weights of the columns that classes are previewed by at first. fine_previews:
        [B, bytes], weights of 2 bits of the other columns. bias: [B LANES] or None.
    Classes:
        order: [m], ids by position. places: [V], of each class among the lanes of all blocks, or -1.
        codes: [m, .], int8 rows in whole lines. code_scale: [m]. code_bias: [m] or None.
        rows: [V, d] by id.
    """

    projection: Bytes
    projection_scale: FloatArray
    row_mean: FloatArray
    tail: FloatArray
    tail_terms: FloatArray
    tail_term_offsets: FloatArray
    centres: Bytes
    centre_scale: FloatArray
    centre_fine_scale: FloatArray
    raises: FloatArray
    reach: FloatArray
    sizes: Ints
    group_blocks: IdArray
    firsts: Ints
    filled: Ints
    previews: Bytes
    fine_previews: Bytes
    bias: FloatArray | None
    order: IdArray
    places: IdArray
    codes: Bytes
    code_scale: FloatArray
    code_bias: FloatArray | None
    rows: FloatArray


# Arrays of every other name are float32.
TABLE_DTYPES: Mapping[str, npt.DTypeLike] = (
    dict.fromkeys(Tables._fields, np.float32)
    | dict.fromkeys(("projection", "centres", "previews", "fine_previews", "codes"), np.uint8)
    | dict.fromkeys(("sizes", "firsts", "filled"), np.int32)
    | dict.fromkeys(("group_blocks", "order", "places"), np.int64)
)
SIZES = (
    "dim", "projection_blocks", "projection_lines", "centre_blocks", "centre_lines", "groups", "blocks",
    "preview_lines", "coarse_lines", "fine_lines", "code_lines", "terms", "ids",
)  # fmt: skip
HEADER_LINES = 3  # of a block's record, before its weights
FINISHING = "logit_scale", "soft_cap", "tail_offset", "tail_limit"


class GroupedStruct(Structure):
    """`struct grouped` of kernels.h: addresses of `Tables`, which must live as long as this is used."""

    _fields_ = [
        *((name, c_void_p) for name in Tables._fields),
        *((name, c_int64) for name in SIZES),
        *((name, c_float) for name in FINISHING),
    ]


class LookStruct(Structure):
    """`struct grouped_limits` of kernels.h."""

    _fields_ = [
        *((name, c_int64) for name in ("opened", "previewed", "candidates", "full_view")),
        ("raise_share", c_float),
    ]


class SearchStruct(Structure):
    """`struct grouped_search` of kernels.h."""

    _fields_ = [
        ("limits", POINTER(LookStruct)),
        *((name, c_void_p) for name in ("weights", "list_weights", "ban_weights")),
        *((name, c_int64) for name in ("free_looks", "list_looks", "k", "fitted")),
        *((name, c_int64) for name in ("most_listed", "opened_per_depth", "deep_bans", "most_bans")),
        *((name, c_float) for name in ("bar", "doubt_bar", "list_doubt_bar")),
    ]


def make_struct(tables: Tables, preview_lines: int, finishing: tuple[float, ...]) -> GroupedStruct:
    """Return the struct of these tables, which have to outlive it.

    preview_lines: of a block's record in int8; its other lines are of 2 bits. finishing: as `FINISHING` names them.
    Raises TypeError for a table that the search would misread.
    """
    addresses = {name: get_address(table, TABLE_DTYPES[name], name) for name, table in tables._asdict().items()}
    sizes = (
        tables.rows.shape[1], *tables.projection.shape[:2], *tables.centres.shape[:2], tables.reach.size,
        tables.firsts.size, preview_lines,
        tables.previews.shape[1] // LINE_BYTES - HEADER_LINES - preview_lines,
        tables.fine_previews.shape[1] // LINE_BYTES, tables.codes.shape[1] // LINE_BYTES,
        tables.tail_term_offsets.size, tables.places.size,
    )  # fmt: skip
    values: dict[str, Any] = dict(zip(SIZES, sizes, strict=True)) | dict(zip(FINISHING, finishing, strict=True))
    return GroupedStruct(**addresses, **values)
