"""Lists of class ids for rows: a table that these refer to, without padding, or an array with a list for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from shortlist.errors import BadInput

from .arrays import INT64_CODE, pack_rows, to_id_array, to_numpy
from .results import NO_CLASS, BoolArray, IdArray, IntArray

NO_LIST = -1  # the number of a row that has no list
MAX_LIST_ID = np.iinfo(np.int32).max
MANY_TIMES = 16  # as many ids in a list as are looked up in it, and more, need no common order
ID_BITS = 31  # of an id up to the largest


@dataclass(frozen=True, slots=True, eq=False)
class RowLists:
    """A table of n lists of class ids, and which of them each of B rows has.

    ids: [m] int32, list after list. offsets: [n + 1] int64, list i is ids[offsets[i]:offsets[i + 1]]. numbers: [B]
    int64, the list of each row; -1 for a row without one, which nothing restricts; with one number, all rows have it.
    largest_id: in the whole table, -1 where that holds no id.
    """

    ids: IntArray
    offsets: IdArray
    numbers: IdArray
    largest_id: int

    @classmethod
    def make(cls, ids: npt.ArrayLike, offsets: npt.ArrayLike, numbers: npt.ArrayLike | None = None) -> RowLists:
        """The table of `ids` and `offsets`; by default row i has list i. Raises BadInput for what is no table."""
        flat, bounds = to_flat_ids("ids", ids), to_flat_ids("offsets", offsets)
        check_offsets(bounds, flat.size)
        check_list_ids(flat)
        lists = bounds.size - 1
        list_numbers = np.arange(lists) if numbers is None else to_flat_ids("numbers", numbers)
        check_numbers(list_numbers, lists)
        return cls(flat.astype(np.int32, copy=False), bounds, list_numbers, int(flat.max(initial=NO_LIST)))

    @classmethod
    def from_lists(cls, lists: list[npt.ArrayLike], numbers: npt.ArrayLike | None = None) -> RowLists:
        """The table of several lists of ids, of any lengths; by default row i has list i. Raises BadInput."""
        plain = [each for each in lists if isinstance(each, list)]
        if len(plain) == len(lists):  # in a tenth of the time
            return cls.make(pack_rows("lists", plain, INT64_CODE), np.cumsum([0, *map(len, plain)]), numbers)
        flat = [to_flat_ids("a list", each) for each in lists]
        offsets = np.cumsum([0, *(each.size for each in flat)])
        return cls.make(np.concatenate([np.empty(0, np.int64), *flat]), offsets, numbers)

    def for_rows(self, numbers: npt.ArrayLike) -> RowLists:
        """The same table for rows of which row i has list numbers[i], -1 for none; raises BadInput."""
        list_numbers = to_flat_ids("numbers", numbers)
        check_numbers(list_numbers, self.offsets.size - 1)
        return replace(self, numbers=list_numbers)

    @property
    def nbytes(self) -> int:
        """How many bytes its arrays take."""
        return self.ids.nbytes + self.offsets.nbytes + self.numbers.nbytes

    def __len__(self) -> int:
        """How many rows it is for; 1 where all rows have the same list."""
        return len(self.numbers)

    def __getitem__(self, part: slice | IdArray) -> RowLists:
        """The same table for some of the rows."""
        return replace(self, numbers=self.numbers[part])

    def get_row(self, row: int) -> IntArray | None:
        """The ids [m] of one row's list; None where it has none."""
        number = self.numbers[row if len(self.numbers) > 1 else 0]
        return None if number == NO_LIST else self.ids[self.offsets[number] : self.offsets[number + 1]]

    def are_empty(self) -> BoolArray:
        """[B]: which rows have no list, or one without ids."""
        starts, ends = self.offsets[self.numbers], self.offsets[self.numbers + 1]
        empty: BoolArray = (starts == ends) | (self.numbers == NO_LIST)
        return empty

    def keep_ids(self, kept: BoolArray, largest_id: int) -> RowLists:
        """The same lists of those ids alone that `kept` [m] marks in `ids`; none of them is over `largest_id`."""
        offsets = np.concatenate([[0], np.cumsum(kept)])[self.offsets]
        return replace(self, ids=self.ids[kept], offsets=offsets, largest_id=largest_id)

    def is_shared(self) -> bool:
        """Whether all rows have the same list, or none has one."""
        return bool((self.numbers == self.numbers[:1]).all())

    def count_longest(self) -> int:
        """How many ids the longest list has that some row has."""
        return int((self.offsets[self.numbers + 1] - self.offsets[self.numbers]).max(initial=0))  # of NO_LIST under 0

    def drop_repeats(self) -> RowLists:
        """The same lists, each id once in each: ascending where some id stood in one more than once."""
        owners = np.repeat(np.arange(self.offsets.size - 1), np.diff(self.offsets))
        keys = np.unique(owners << ID_BITS | self.ids)
        if keys.size == self.ids.size:
            return self
        offsets = np.searchsorted(keys, np.arange(self.offsets.size) << ID_BITS)
        return replace(self, ids=(keys & MAX_LIST_ID).astype(np.int32), offsets=offsets)

    def keep_used_lists(self) -> RowLists:
        """The same lists of the same rows, in a table of those alone that some row has."""
        used, places = np.unique(self.numbers[self.numbers >= 0], return_inverse=True)
        parts = [self.ids[self.offsets[number] : self.offsets[number + 1]] for number in used]
        numbers = np.full(len(self.numbers), NO_LIST)
        numbers[self.numbers >= 0] = places
        offsets = np.cumsum([0, *(part.size for part in parts)])
        return RowLists(np.concatenate([np.empty(0, np.int32), *parts]), offsets, numbers, self.largest_id)


Lists = IdArray | RowLists  # [1 or B, m] int64 padded with -1, or a table that rows refer to


@dataclass(frozen=True, slots=True, eq=False)
class NamedLists:
    """Lists that a server knows by `name`, and which of them each row has: [B] int64, -1 for none.

    Without `numbers` row i has list i, and a table of one list holds for all rows.
    """

    name: str
    numbers: IdArray | None = None

    def __getitem__(self, part: slice | IdArray) -> NamedLists:
        """The same lists for some of the rows."""
        return self if self.numbers is None else NamedLists(self.name, self.numbers[part])


@overload
def take_rows(lists: IdArray | None, part: slice | IdArray) -> IdArray | None: ...


@overload
def take_rows(lists: Lists | None, part: slice | IdArray) -> Lists | None: ...


def take_rows(lists: Lists | None, part: slice | IdArray) -> Lists | None:
    """Return the lists of some rows; those that hold for all rows stay as they are."""
    return lists if lists is None or len(lists) == 1 else lists[part]


def get_row_list(lists: Lists | None, row: int) -> IdArray | IntArray | None:
    """Return the ids of one row without padding; None where it has no list."""
    if lists is None:
        return None
    return lists.get_row(row) if isinstance(lists, RowLists) else drop_padding(lists, row)


def drop_padding(ids: IdArray, row: int) -> IdArray:
    """Return the ids of one row of `ids` [1 or B, m], without the padding."""
    row_ids: IdArray = ids[row if len(ids) > 1 else 0]
    return row_ids if row_ids.min(initial=0) >= 0 else row_ids[row_ids >= 0]


def are_empty(lists: Lists) -> BoolArray:
    """[1 or B]: which lists hold no class."""
    if isinstance(lists, RowLists):
        return lists.are_empty()
    empty: BoolArray = (lists == NO_CLASS).all(axis=1)
    return empty


def sort_ids(ids: npt.ArrayLike) -> IdArray:
    """`ids` [m] as int64, ascending and each once; what is in order already is not sorted again."""
    plain = np.asarray(ids, np.int64)
    return plain if bool((plain[1:] > plain[:-1]).all()) else np.unique(plain)


def mark_members(ids: IdArray, others: IdArray | IntArray) -> BoolArray:
    """[m]: which of `ids` [m], of which -1 is none, are among `others` [n]; few in many are looked up one by one."""
    if others.size <= MANY_TIMES * ids.size:
        return np.isin(ids, others)
    if bool((others[1:] >= others[:-1]).all()):
        marks: BoolArray = others[np.minimum(np.searchsorted(others, ids), others.size - 1)] == ids
        return marks
    table = np.zeros(max(int(others.max()), int(ids.max(initial=0))) + 1, bool)  # to sort them would take longer
    table[others] = True
    members: BoolArray = table[ids] & (ids >= 0)
    return members


def to_flat_ids(what: str, values: Any) -> IdArray:
    """`values` as [m] int64; raises BadInput."""
    if isinstance(values, list | tuple | range) and not values:
        return np.empty(0, np.int64)
    ids = to_id_array(what, list(values) if isinstance(values, range) else to_plain(values))
    if ids.ndim != 1:
        raise BadInput(f"{what} have shape {list(ids.shape)}: give them flat, [m]")
    return ids


def to_plain(values: Any) -> Any:
    """`values` themselves; a tensor as numpy."""
    return to_numpy(values) if hasattr(values, "detach") else values


def check_offsets(offsets: IdArray, size: int) -> None:
    """Raise BadInput unless `offsets` [n + 1] ascend from 0 to `size`."""
    if not offsets.size or offsets[0] != 0 or offsets[-1] != size or (offsets[1:] < offsets[:-1]).any():
        raise BadInput(f"offsets must ascend from 0 to the number of ids, {size}: give where each list begins and ends")


def check_list_ids(ids: IdArray) -> None:
    """Raise BadInput for an id that no class can have: lists without padding hold no -1."""
    wrong = ids[(ids < 0) | (ids > MAX_LIST_ID)]
    if wrong.size:
        raise BadInput(f"a list holds id {wrong[0]}: give class ids from 0, without padding")


def check_numbers(numbers: IdArray, lists: int) -> None:
    """Raise BadInput for a number that is neither -1 nor that of a list."""
    wrong = numbers[(numbers < NO_LIST) | (numbers >= lists)]
    if wrong.size:
        raise BadInput(f"a row has list {wrong[0]} but the lists go from 0 to {lists - 1}; -1 stands for no list")
