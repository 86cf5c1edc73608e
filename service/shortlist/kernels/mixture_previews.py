"""Int8 previews of the frequent classes of plan `mixture`, as compiled loops read them."""

from __future__ import annotations

from ctypes import Structure, byref, c_int64, c_void_p
from functools import partial
from typing import Self

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import IdArray
from shortlist.runtime.shared_tables import share_table

from .native.arguments import get_address
from .primitives.layout import LANE_BYTES, Bytes, arrange_blocks, pad_columns, pad_lanes, shift_to_unsigned

PREVIEWS, SCALES, ERRORS, SIZES = (f"mixture_preview_{name}" for name in ("rows", "scales", "errors", "sizes"))
WEIGHTS = "search_weight"  # rows of all classes by id, as the search among the rare ones reads them


class PreviewsStruct(Structure):
    """`struct mixture_previews` of kernels.h: addresses of arrays, which must live as long as this is used."""

    _fields_ = [
        *((name, c_void_p) for name in ("rows", "scale", "error", "size", "weights", "ids")),
        ("lines", c_int64),
    ]


class FrequentPreviews:
    """The tables of previews. pointer: to their struct. Threads may share it."""

    def __init__(self, bundle: Bundle, frequent: IdArray) -> None:
        """Lay out the arrays of a bundle that has them, in blocks of classes. frequent: [S], ascending ids."""
        digest, self.frequent, self.weights = bundle.manifest.digest, frequent, bundle.map_array(WEIGHTS)
        self.rows = share_table(digest, PREVIEWS, partial(lay_out_previews, bundle.map_array(PREVIEWS)))
        self.of_classes = [pad_lanes(bundle.map_array(role)) for role in (SCALES, ERRORS, SIZES)]
        self.struct = PreviewsStruct(
            get_address(self.rows, np.uint8, PREVIEWS),
            *(get_address(values, np.float32, SCALES) for values in self.of_classes),
            get_address(self.weights, np.float32, WEIGHTS),
            get_address(frequent, np.int64, "frequent"),
            self.rows.shape[1],
        )
        self.pointer = byref(self.struct)

    @classmethod
    def open(cls, bundle: Bundle, frequent: IdArray) -> Self | None:
        """Open the previews; None where the bundle has none."""
        has_arrays = bundle.has_arrays(PREVIEWS, SCALES, ERRORS, SIZES, WEIGHTS)
        return cls(bundle, frequent) if has_arrays else None


def lay_out_previews(previews: npt.NDArray[np.int8]) -> Bytes:
    """Arrange int8 rows [S, d] in blocks of classes, after which come rows of zeros."""
    return arrange_blocks(shift_to_unsigned(pad_lanes(pad_columns(previews, LANE_BYTES))))
