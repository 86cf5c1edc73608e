"""Allow and ban lists as the native library takes them."""

from __future__ import annotations

from ctypes import Structure, c_int64, c_void_p
from typing import Any

import numpy as np

from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, IdArray

from .native.arguments import get_address
from .primitives.arrays import as_carray


class ListsStruct(Structure):
    """`struct lists` of kernels.h; it keeps its arrays alive."""

    _fields_ = [
        *((name, c_void_p) for name in ("allow", "ban")),
        *((name, c_int64) for name in ("allow_count", "ban_count", "allow_stride", "ban_stride")),
    ]
    arrays: Any


def describe_lists(class_filter: ClassFilter) -> ListsStruct:
    """The lists of some rows: of all rows one, or one each."""
    lists = [prepare_list(ids) for ids in (class_filter.allow, class_filter.ban)]
    counts = [0 if ids is None else ids.shape[1] for ids in lists]
    strides = [0 if ids is None or len(ids) == 1 else ids.shape[1] for ids in lists]
    addresses = [get_address(ids, np.int64, "lists") for ids in lists]
    struct = ListsStruct(*addresses, *counts, *strides)
    struct.arrays = lists
    return struct


def prepare_list(ids: IdArray | None) -> IdArray | None:
    """`ids` [n, m] in one piece, with a column of padding where there is none: no address stands for no list."""
    if ids is None:
        return None
    return as_carray(ids) if ids.shape[1] else np.full((1, 1), NO_CLASS, np.int64)


NO_LISTS = ListsStruct()
