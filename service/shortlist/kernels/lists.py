"""Allow and ban lists as the native library takes them."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import Structure, byref, c_int64, c_void_p
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.core.arrays import align
from shortlist.core.filters import ClassFilter, IdLists
from shortlist.core.results import NO_CLASS, BoolArray, IdArray, IntArray
from shortlist.core.row_lists import Lists, RowLists

from .native.arguments import point_at
from .native.library import open_kernels

INTEGERS = np.dtype(np.int64), np.dtype(np.int32)
NO_IDS: IdArray = np.empty(0, np.int64)
EVERY_CLASS: IdArray = np.array([-2])  # ALL_CLASSES of kernels.h: a row without an allow list beside others
MOST_LISTED = 2_048  # classes of an allow list that every search answers itself
MAX_BANS = 1 << 14  # up to so many, a ban list costs what a short one does


class ListsStruct(Structure):
    """`struct lists` of kernels.h; it keeps its arrays."""

    _fields_ = [
        *((name, c_void_p) for name in ("allow", "ban")),
        *((name, c_int64) for name in ("allow_size", "allow_step", "ban_size", "ban_step")),
        ("marks", c_void_p),
    ]
    arrays: Any


def point_at_lists(class_filter: ClassFilter, rows: int) -> Any:
    """Return a pointer to the struct of the lists of `rows` rows, which it keeps; None where there are none."""
    if not class_filter.restricts:
        return None
    return byref(make_struct(*pack_lists(class_filter, rows)))


def point_at_marks(class_filter: ClassFilter, marks: BoolArray, rows: int) -> Any:
    """As `point_at_lists`, for searches of groups: the filter's `marks` [V] stand for the list that they mark."""
    ban = None if class_filter.allow is None else class_filter.ban
    struct = make_struct(*pack_lists(ClassFilter(ban=ban, hidden=class_filter.hidden), rows))
    struct.marks, struct.allow_size = marks.ctypes.data, class_filter.count_marked()
    struct.arrays = struct.arrays, marks
    return byref(struct)


def mark_long_list(ids: IdArray | IntArray, classes: int) -> BoolArray | None:
    """Marks [V] of a list [m], by one pass over its ids; None where one of them is of no class, or pads."""
    kernels = open_kernels()
    if kernels is None:
        return None
    marks, plain = np.zeros(classes, bool), align(np.ascontiguousarray(ids, np.int64))
    return marks if kernels.mark_list(plain.ctypes.data, plain.size, classes, point_at(marks)) else None


def make_struct(allow: IdArray | None, ban: IdArray | None) -> ListsStruct:
    """The struct of lists as `pack_lists` returns them."""
    struct = ListsStruct()
    struct.arrays = allow, ban
    if allow is not None:
        struct.allow, struct.allow_size, struct.allow_step = measure_lists(allow)
    if ban is not None:
        struct.ban, struct.ban_size, struct.ban_step = measure_lists(ban)
    return struct


def pack_lists(class_filter: ClassFilter, rows: int) -> tuple[IdArray | None, IdArray | None]:
    """The allow and ban lists of a filter of `rows` rows, each [1 or rows, m] int64 padded with -1, or None."""
    lists = class_filter.allow, class_filter.ban
    plain = all(ids is None or isinstance(ids, np.ndarray) for ids in lists)
    if plain and class_filter.is_plain:
        allow, ban = (None if ids is None else align(np.ascontiguousarray(ids, np.int64)) for ids in lists)
        return allow, ban
    allow_rows = count_different_rows(rows, class_filter.allow, class_filter.forced)
    ban_rows = count_different_rows(rows, class_filter.ban, class_filter.hidden, class_filter.forced)
    allowed = [class_filter.allow_list(row) for row in range(allow_rows)]
    banned = [np.concatenate([NO_IDS, *class_filter.list_bans(row)]) for row in range(ban_rows)]
    if all(ids is None for ids in allowed):
        return None, pad_rows(banned)
    return pad_rows([EVERY_CLASS if ids is None else ids for ids in allowed]), pad_rows(banned)


def count_different_rows(rows: int, *lists: Lists | None) -> int:
    """1 where all rows have the same of each of these lists, else `rows`."""
    same = (each is None or (each.is_shared() if isinstance(each, RowLists) else len(each) == 1) for each in lists)
    return 1 if all(same) else rows


def pad_rows(lists: Sequence[npt.NDArray[np.integer[Any]]]) -> IdArray:
    """Lists of ids as rows [B, m] int64, padded with -1."""
    padded = np.full((len(lists), max(1, *(len(ids) for ids in lists))), NO_CLASS, np.int64)
    for row, ids in zip(padded, lists, strict=True):
        row[: len(ids)] = ids
    return padded


def measure_lists(ids: IdArray) -> tuple[int, int, int]:
    """Where lists [1 or B, m] are in memory, how many ids a row has, and how many are from row to row."""
    rows, size = ids.shape
    return ids.ctypes.data, size, size if rows > 1 else 0


def take_list(lists: IdLists, most: int, classes: int) -> IdArray | None:
    """The ids [1, m] of a list that all rows share, 1 to `most` of them; None for any other, and for no list.

    A table of lists with an id that none of the `classes` has is none: it is refused as a whole.
    """
    ids: npt.NDArray[np.integer[Any]] | None
    if type(lists) is RowLists:
        ids = lists.get_row(0) if len(lists) == 1 and lists.largest_id < classes else None
    else:
        ids = to_plain_ids(lists)
    if ids is None or not 0 < ids.size <= most:
        return None
    plain: IdArray = align(np.ascontiguousarray(ids, np.int64)).reshape(1, -1)
    return plain


def to_plain_ids(lists: Any) -> npt.NDArray[np.integer[Any]] | None:
    """One list as an array [m] or [1, m], of such an array, a list of ints, or a list of one such; None for others."""
    if type(lists) is list and len(lists) == 1:  # the lists of a single row
        (only,) = lists
        lists = only if type(only) is list or (type(only) is np.ndarray and only.ndim == 1) else lists
    if type(lists) is list and set(map(type, lists)) == {int}:
        try:
            lists = np.array(lists)
        except (ValueError, OverflowError):
            return None
    is_plain = type(lists) is np.ndarray and lists.dtype in INTEGERS
    return lists if is_plain and (lists.ndim == 1 or (lists.ndim == 2 and len(lists) == 1)) else None
