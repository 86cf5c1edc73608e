"""Which classes may be returned for a row, and what is added to their logits, before the top k is taken."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from shortlist.errors import BadInput

from .arrays import to_id_array
from .results import NO_CLASS, BoolArray, FloatArray, IdArray, IntArray
from .row_lists import NO_LIST, Lists, NamedLists, RowLists, are_empty, get_row_list, mark_members, take_rows

ID_BYTES = np.dtype(np.int64).itemsize

IdLists = npt.ArrayLike | RowLists | None


@dataclass(frozen=True, slots=True)
class ClassFilter:
    """The lists of B rows, each None where there is none.

    allow, ban: the only classes that may be returned, and those that may not. hidden: more that may not, [1 or B, m]
    int64 padded with -1. forced: [B] int64, the one class that may be returned for a row, whatever its lists say; -1
    for a row that is free. permitted: [V], the same as `allow` of all rows (where there is none: as `ban`), marked;
    None where nobody marked it.
    """

    allow: Lists | None = None
    ban: Lists | None = None
    hidden: IdArray | None = None
    forced: IdArray | None = None
    permitted: BoolArray | None = None

    def slice_rows(self, start: int, stop: int) -> ClassFilter:
        """Return the filter of rows start to stop - 1; a list that holds for all rows stays as it is."""
        return self.take(slice(start, stop))

    def take(self, part: slice | IdArray) -> ClassFilter:
        """Return the filter of some of the rows; a list that holds for all rows stays as it is."""
        forced = None if self.forced is None else self.forced[part]
        lists = take_rows(self.allow, part), take_rows(self.ban, part), take_rows(self.hidden, part)
        return ClassFilter(*lists, forced, self.permitted)

    @property
    def restricts(self) -> bool:
        """True if some list restricts what may be returned."""
        return not (self.allow is None and self.ban is None and self.hidden is None and self.forced is None)

    @property
    def is_plain(self) -> bool:
        """True if no class is hidden or forced: lists alone restrict what may be returned."""
        return self.hidden is None and self.forced is None

    @property
    def nbytes(self) -> int:
        """How many bytes its lists take."""
        return sum(lists.nbytes for lists in (self.allow, self.ban, self.hidden) if lists is not None)

    def hide(self, ids: IdArray) -> ClassFilter:
        """The same filter that permits none of `ids` [1 or B, m] either, which -1 pads."""
        if self.hidden is None:
            return replace(self, hidden=ids)
        rows = max(len(self.hidden), len(ids))
        hidden = [np.broadcast_to(each, (rows, each.shape[1])) for each in (self.hidden, ids)]
        return replace(self, hidden=np.concatenate(hidden, axis=1))

    def allow_list(self, row: int) -> IdArray | IntArray | None:
        """Return the row's allow list [m] without its padding, None where there is no allow list."""
        if self.is_forced(row):
            assert self.forced is not None
            return self.forced[row : row + 1]
        if self.permitted is not None and isinstance(self.allow, np.ndarray) and self.allow[0, 0] != NO_CLASS:
            members: IdArray = self.allow[0]  # of named sets, without padding
            return members
        return get_row_list(self.allow, row)

    def list_bans(self, row: int) -> list[IdArray | IntArray]:
        """Return the row's lists of classes that may not be returned, each [m]."""
        if self.is_forced(row):
            return []
        lists = (get_row_list(each, row) for each in (self.ban, self.hidden))
        return [each for each in lists if each is not None]

    def is_forced(self, row: int) -> bool:
        """Return True if one class alone may be returned for this row, whatever its lists say."""
        return self.forced is not None and bool(self.forced[row] >= 0)

    def count_marked(self) -> int:
        """How many classes marks permit; 0 where nobody marked any, or some row is forced."""
        listed = self.ban if self.allow is None else self.allow
        if self.permitted is None or self.forced is not None or not isinstance(listed, np.ndarray):
            return 0
        return self.permitted.size - listed.size if self.allow is None else listed.size

    def without_marks(self) -> ClassFilter:
        """The same filter, which its lists alone say."""
        return self if self.permitted is None else replace(self, permitted=None)

    def mask(self, ids: IdArray, row: int) -> npt.NDArray[np.bool_]:
        """Return a mask [m]: True where a class of the `ids` [m] may be returned for this row."""
        if self.permitted is not None and not self.is_forced(row):
            return self.mask_by_marks(ids, row)
        permitted = np.ones(ids.size, bool)
        allowed = self.allow_list(row)
        if allowed is not None:
            permitted &= mark_members(ids, allowed)
        for banned in self.list_bans(row):
            permitted &= ~mark_members(ids, banned)
        return permitted

    def mask_by_marks(self, ids: IdArray, row: int) -> npt.NDArray[np.bool_]:
        """Return the same where `permitted` says what one of the lists does."""
        assert self.permitted is not None
        permitted = self.permitted[ids]
        hidden = get_row_list(self.hidden, row)
        banned = get_row_list(self.ban, row) if self.allow is not None else None
        for each in (banned, hidden):
            if each is not None:
                permitted = permitted & ~mark_members(ids, each)
        return permitted

    def restrict(self, scores: FloatArray, row: int) -> FloatArray:
        """Return `scores` [V] of this row with -inf at every class that the lists exclude; `scores` is not changed."""
        allowed, bans = self.allow_list(row), self.list_bans(row)
        if allowed is not None:
            scores = mask_others(scores, allowed)
        elif bans:
            scores = scores.copy()
        for banned in bans:
            scores[banned] = -np.inf
        return scores


UNRESTRICTED = ClassFilter()


class Members:
    """The classes that named sets permit. permitted: [V], marked. Threads may share it."""

    def __init__(self, permitted: BoolArray) -> None:
        self.permitted = permitted

    def extend(self, classes: int, *, permitted: bool) -> Members:
        """These members among more `classes`; permitted: whether those beyond V, items that no set knows, are in."""
        more = classes - self.permitted.size
        return self if more <= 0 else Members(np.pad(self.permitted, (0, more), constant_values=permitted))

    @cached_property
    def count(self) -> int:
        """How many classes are permitted."""
        return int(np.count_nonzero(self.permitted))

    @cached_property
    def legal(self) -> IdArray:
        """[m] int64, the permitted classes, ascending."""
        return self.permitted.nonzero()[0]

    @cached_property
    def excluded(self) -> IdArray:
        """[V - m] int64, the others, ascending."""
        return (~self.permitted).nonzero()[0]

    @property
    def nbytes(self) -> int:
        """The memory that it takes at most: its marks, and lists that have all classes together, once they are made."""
        return self.permitted.nbytes * (1 + ID_BYTES)


def restrict_to_members(lists: ClassFilter, members: Members) -> ClassFilter:
    """The filter of `lists` and of named sets together, as lists alone; `members` also as marks where that is exact."""
    if members.count == members.permitted.size:
        return lists
    if lists.allow is not None:
        return replace(lists, allow=keep_members(lists.allow, members))
    if lists.ban is not None or 2 * members.count <= members.permitted.size:
        legal = members.legal if members.legal.size else np.array([NO_CLASS])
        return replace(lists, allow=legal[None], permitted=members.permitted)
    return replace(lists, ban=members.excluded[None], permitted=members.permitted)


def keep_members(lists: Lists, members: Members) -> Lists:
    """`lists` without the ids that are no members; a row without a list gets that of all members."""
    if not isinstance(lists, RowLists):
        ids = np.where((lists >= 0) & members.permitted[lists], lists, NO_CLASS)
        return ids if ids.size else np.full((len(ids), 1), NO_CLASS)
    kept = lists.keep_ids(members.permitted[lists.ids], lists.largest_id)
    if not (kept.numbers == NO_LIST).any():
        return kept
    ids = np.concatenate([kept.ids, members.legal.astype(np.int32)])
    numbers = np.where(kept.numbers == NO_LIST, len(kept.offsets) - 1, kept.numbers)
    return RowLists(ids, np.append(kept.offsets, ids.size), numbers, int(ids.max(initial=NO_LIST)))


def mask_others(scores: FloatArray, ids: IdArray | IntArray) -> FloatArray:
    """Return a copy of `scores` [V] with -inf everywhere but at `ids`."""
    masked = np.full_like(scores, -np.inf)
    masked[ids] = scores[ids]
    return masked


def parse_filter(allow: IdLists, ban: IdLists, rows: int, classes: int) -> ClassFilter:
    """Convert both lists as `parse_filter_lists`; bans that forbid no class to any row are none. Raises BadInput."""
    allowed = parse_filter_lists("allow", allow, rows, classes)
    banned = parse_filter_lists("ban", ban, rows, classes)
    banned = None if banned is not None and are_empty(banned).all() else banned
    return UNRESTRICTED if allowed is None and banned is None else ClassFilter(allowed, banned)


def parse_filter_lists(name: str, lists: IdLists, rows: int, classes: int) -> Lists | None:
    """Convert an allow or ban list as `parse_id_lists`, None where there is none; a table of lists is checked.

    A list for all rows that is longer than there are classes comes back sorted, without its duplicates.
    """
    if lists is None:
        return None
    if isinstance(lists, RowLists):
        check_list_rows(name, lists, rows)
        check_largest_id(name, lists.largest_id, classes)
        return lists
    refuse_named_lists(name, lists)
    ids = parse_id_lists(name, lists, rows, classes)
    return np.unique(ids)[None] if ids.size > classes and len(ids) == 1 else ids


def refuse_named_lists(name: str, lists: object) -> None:
    """Raise BadInput for lists that stand in a server's memory."""
    if isinstance(lists, NamedLists):
        raise BadInput(f"{name} is NamedLists, which servers alone know: give a head the table's for_rows(numbers)")


def parse_id_lists(name: str, lists: npt.ArrayLike | None, rows: int, classes: int) -> IdArray:
    """Convert `lists`, [m] for all rows or one a row, padded with -1 or ragged, to [1 or rows, m] int64.

    Raises BadInput for another shape or dtype, and for an id that is neither -1 nor below `classes`.
    """
    ids = np.atleast_2d(to_id_array(name, lists))
    check_list_rows(name, ids, rows)
    check_id_range(name, ids, classes)
    return ids


def check_list_rows(name: str, ids: Sized, rows: int) -> None:
    """Raise BadInput if the lists `ids` of n rows are neither one list for all rows nor one for each of `rows`."""
    if len(ids) not in (1, rows):
        raise BadInput(f"{name} has {len(ids)} rows for {rows} contexts: give one list for all, or one a row")


def check_id_range(name: str, ids: IdArray, classes: int) -> None:
    """Raise BadInput if an id is neither -1 (padding) nor one of `classes` classes."""
    if ids.size and (ids.min() < NO_CLASS or ids.max() >= classes):
        invalid = ids[(ids < NO_CLASS) | (ids >= classes)]
        raise make_range_error(name, int(invalid.flat[0]), classes)


def check_largest_id(name: str, largest_id: int, classes: int) -> None:
    """Raise BadInput if the largest id of a list is none of `classes` classes."""
    if largest_id >= classes:
        raise make_range_error(name, largest_id, classes)


def make_range_error(name: str, id: int, classes: int) -> BadInput:
    """The error for an id that is no class."""
    return BadInput(f"{name} holds id {id} but classes go from 0 to {classes - 1}")
