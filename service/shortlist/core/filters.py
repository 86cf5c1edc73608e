"""Which classes a row may be answered with: allow and ban lists, applied before the top k is taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shortlist.errors import BadInput

from .results import FloatArray, IdArray

IdLists = npt.ArrayLike | None


@dataclass(frozen=True, slots=True)
class ClassFilter:
    """allow, ban: [1 or B, m] int64 padded with -1, or None for no such list."""

    allow: IdArray | None = None
    ban: IdArray | None = None

    def slice_rows(self, start: int, stop: int) -> ClassFilter:
        """The lists of rows start..stop; a list for all rows stays as it is."""
        return ClassFilter(slice_lists(self.allow, start, stop), slice_lists(self.ban, start, stop))

    @property
    def restricts(self) -> bool:
        """Whether any class may be illegal."""
        return self.allow is not None or self.ban is not None

    def allow_list(self, row: int) -> IdArray | None:
        """The row's allow list without padding, or None where there is none."""
        return None if self.allow is None else drop_padding(self.allow, row)

    def mask(self, ids: IdArray, row: int) -> npt.NDArray[np.bool_]:
        """[m]: which of the ascending `ids` [m] are legal for this row."""
        legal = np.ones(ids.size, bool)
        if self.allow is not None:
            legal &= np.isin(ids, drop_padding(self.allow, row))
        if self.ban is not None:
            legal &= ~np.isin(ids, drop_padding(self.ban, row))
        return legal

    def restrict(self, scores: FloatArray, row: int) -> FloatArray:
        """`scores` [V] of this row with -inf at every illegal class; the array itself is not changed."""
        if self.allow is not None:
            scores = mask_others(scores, drop_padding(self.allow, row))
        if self.ban is not None:
            scores = scores.copy()
            scores[drop_padding(self.ban, row)] = -np.inf
        return scores


UNRESTRICTED = ClassFilter()


def slice_lists(ids: IdArray | None, start: int, stop: int) -> IdArray | None:
    """Rows start..stop of per-row lists."""
    return ids if ids is None or len(ids) == 1 else ids[start:stop]


def drop_padding(ids: IdArray, row: int) -> IdArray:
    """One row's ids without the padding."""
    own: IdArray = ids[row if len(ids) > 1 else 0]
    return own[own >= 0]


def mask_others(scores: FloatArray, ids: IdArray) -> FloatArray:
    """`scores` [V] at `ids`, -inf elsewhere."""
    only = np.full_like(scores, -np.inf)
    only[ids] = scores[ids]
    return only


def parse_id_lists(name: str, lists: IdLists, rows: int, classes: int) -> IdArray | None:
    """`lists` as [1 or rows, m] int64; raises BadInput when it has another shape or an id out of range."""
    if lists is None:
        return None
    try:
        ids = np.asarray(lists)
    except ValueError:
        raise BadInput(f"{name} must be [m] ids, or [{rows}, m] ids padded with -1") from None
    if ids.size == 0:
        ids = ids.astype(np.int64)
    if ids.ndim not in (1, 2) or ids.dtype.kind not in "iu":
        raise BadInput(f"{name} must be [m] or [{rows}, m] integers, not {ids.dtype} of shape {list(ids.shape)}")
    ids = np.atleast_2d(ids).astype(np.int64, copy=False)
    if len(ids) not in (1, rows):
        raise BadInput(f"{name} has {len(ids)} rows for {rows} contexts: give one list for all, or one a row")
    check_id_range(name, ids, classes)
    return np.unique(ids)[None] if ids.size > classes and len(ids) == 1 else ids


def check_id_range(name: str, ids: IdArray, classes: int) -> None:
    """Raise BadInput when an id is neither -1 (padding) nor a class."""
    wrong = ids[(ids < -1) | (ids >= classes)]
    if wrong.size:
        raise BadInput(f"{name} holds id {wrong.flat[0]} but classes go from 0 to {classes - 1}")
