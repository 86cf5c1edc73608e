"""The second stage of plan `screen` as compiled loops read it: int8 previews of clusters' classes, and exact rows."""

from __future__ import annotations

from ctypes import Structure, byref, c_int64, c_void_p, cast
from typing import Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, IdArray
from shortlist.runtime.shared_tables import share_table

from .exact_rows import CompiledGather
from .native.arguments import get_address
from .primitives.arrays import Arrays
from .primitives.int8_columns import ColumnsStruct, Int8Columns
from .primitives.layout import (
    LANE_BYTES,
    LANES,
    WEIGHT_ZERO_POINT,
    Bytes,
    arrange_blocks,
    list_first_blocks,
    place_in_blocks,
    scatter_rows,
    shift_to_unsigned,
)

ROLES = "screen_columns", "screen_projection", "screen_previews", "screen_scales"


class SecondStageStruct(Structure):
    """`struct second_stage` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [
        ("rows", c_void_p),
        ("projection", ColumnsStruct),
        *((name, c_void_p) for name in ("blocks", "previews", "scale", "bias")),
        ("lines", c_int64),
    ]


class SecondStage:
    """The tables of a second stage. pointer: to their struct. Threads may share it."""

    def __init__(
        self,
        rows: CompiledGather,
        projection: Int8Columns,
        blocks: IdArray,
        previews: Bytes,
        scale: FloatArray,
        bias: FloatArray | None,
    ) -> None:
        """Take the addresses of arrays, which are named as the struct's fields. rows: of the whole layer."""
        self.arrays = rows, projection, blocks, previews, scale, bias  # must live as long as their addresses are used
        addresses = (
            cast(rows.table, c_void_p).value,
            projection.struct,
            get_address(blocks, np.int64, "blocks"),
            get_address(previews, np.uint8, "previews"),
            get_address(scale, np.float32, "scale"),
            get_address(bias, np.float32, "bias"),
        )
        self.pointer = byref(SecondStageStruct(*addresses, previews.shape[1]))

    @classmethod
    def open(cls, bundle: Bundle, index: Arrays, rows: CompiledGather) -> Self:
        """Lay out the previews of a bundle that has all of `ROLES`, cluster by cluster in blocks of `LANES` classes."""
        offsets = index["offsets"]
        blocks, places = list_first_blocks(offsets), place_in_blocks(offsets)
        previews = share_table(
            bundle.manifest.digest,
            "screen-previews",
            lambda: lay_out_previews(bundle.map_array("screen_previews"), offsets, blocks),
        )
        scale = scatter_rows(bundle.map_array("screen_scales"), places, blocks[-1])
        bias = bundle.map_array("exact_bias")[index["ids"]] if bundle.has_arrays("exact_bias") else None
        wide_bias = None if bias is None else scatter_rows(bias, places, blocks[-1])
        return cls(rows, Int8Columns(bundle.map_array("screen_projection")), blocks, previews, scale, wide_bias)


def lay_out_previews(previews: npt.NDArray[np.int8], offsets: IdArray, blocks: IdArray) -> Bytes:
    """Arrange previews [n, W], which lie cluster by cluster, each by column, in blocks of classes."""
    width, flat = previews.shape[1], previews.reshape(-1)
    rows = np.full((LANES * blocks[-1], width + -width % LANE_BYTES), WEIGHT_ZERO_POINT, np.uint8)
    for cluster, block in enumerate(blocks[:-1]):
        first, last = offsets[cluster], offsets[cluster + 1]
        columns = flat[width * first : width * last].reshape(width, last - first)
        rows[LANES * block : LANES * block + last - first, :width] = shift_to_unsigned(columns.T)
    return arrange_blocks(rows)
