"""Allow and ban lists: which classes may be returned for a row. They apply before the top k is taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shortlist.errors import BadInput

from .arrays import to_id_array
from .results import FloatArray, IdArray

IdLists = npt.ArrayLike | None


@dataclass(frozen=True, slots=True)
class ClassFilter:
    """The allow and ban lists of B rows: each [1 or B, m] int64 padded with -1, or None where there is no such list."""

    allow: IdArray | None = None
    ban: IdArray | None = None

    def slice_rows(self, start: int, stop: int) -> ClassFilter:
        """Return the filter of rows start to stop - 1; a list that holds for all rows stays as it is."""
        return ClassFilter(slice_lists(self.allow, start, stop), slice_lists(self.ban, start, stop))

    @property
    def restricts(self) -> bool:
        """True if there is an allow or a ban list."""
        return self.allow is not None or self.ban is not None

    def allow_list(self, row: int) -> IdArray | None:
        """Return the row's allow list [m] without its padding, None where there is no allow list."""
        return None if self.allow is None else drop_padding(self.allow, row)

    def mask(self, ids: IdArray, row: int) -> npt.NDArray[np.bool_]:
        """Return a mask [m]: True where a class of the ascending `ids` [m] may be returned for this row."""
        permitted = np.ones(ids.size, bool)
        if self.allow is not None:
            permitted &= np.isin(ids, drop_padding(self.allow, row))
        if self.ban is not None:
            permitted &= ~np.isin(ids, drop_padding(self.ban, row))
        return permitted

    def restrict(self, scores: FloatArray, row: int) -> FloatArray:
        """Return `scores` [V] of this row with -inf at every class that the lists exclude; `scores` is not changed."""
        if self.allow is not None:
            scores = mask_others(scores, drop_padding(self.allow, row))
        if self.ban is not None:
            scores = scores.copy()
            scores[drop_padding(self.ban, row)] = -np.inf
        return scores


UNRESTRICTED = ClassFilter()


def slice_lists(ids: IdArray | None, start: int, stop: int) -> IdArray | None:
    return ids if ids is None or len(ids) == 1 else ids[start:stop]


def drop_padding(ids: IdArray, row: int) -> IdArray:
    """Return the ids of one row of `ids` [1 or B, m], without the padding."""
    row_ids: IdArray = ids[row if len(ids) > 1 else 0]
    return row_ids[row_ids >= 0]


def mask_others(scores: FloatArray, ids: IdArray) -> FloatArray:
    """Return a copy of `scores` [V] with -inf everywhere but at `ids`."""
    masked = np.full_like(scores, -np.inf)
    masked[ids] = scores[ids]
    return masked


def parse_filter_lists(name: str, lists: IdLists, rows: int, classes: int) -> IdArray | None:
    """Convert an allow or ban list as `parse_id_lists`; None where there is none.

    A list for all rows that is longer than there are classes comes back sorted, without its duplicates.
    """
    if lists is None:
        return None
    ids = parse_id_lists(name, lists, rows, classes)
    return np.unique(ids)[None] if ids.size > classes and len(ids) == 1 else ids


def parse_id_lists(name: str, lists: IdLists, rows: int, classes: int) -> IdArray:
    """Convert `lists`, [m] for all rows or one a row, padded with -1 or ragged, to [1 or rows, m] int64.

    Raises BadInput for another shape or dtype, and for an id that is neither -1 nor below `classes`.
    """
    ids = np.atleast_2d(to_id_array(name, lists))
    check_list_rows(name, ids, rows)
    check_id_range(name, ids, classes)
    return ids


def check_list_rows(name: str, ids: IdArray, rows: int) -> None:
    """Raise BadInput if `ids` [n, m] are neither one list for all rows nor one for each of `rows`."""
    if len(ids) not in (1, rows):
        raise BadInput(f"{name} has {len(ids)} rows for {rows} contexts: give one list for all, or one a row")


def check_id_range(name: str, ids: IdArray, classes: int) -> None:
    """Raise BadInput if an id is neither -1 (padding) nor one of `classes` classes."""
    invalid = ids[(ids < -1) | (ids >= classes)]
    if invalid.size:
        raise BadInput(f"{name} holds id {invalid.flat[0]} but classes go from 0 to {classes - 1}")
