"""The candidate sets of clusters, or the classes of experts, and what several of them have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import IdArray

UNION_CACHE_ENTRIES = 8192
PAIR_CACHE_ENTRIES = 8192

Mask = npt.NDArray[np.bool_]


class Union(NamedTuple):
    """Ascending `ids` of several sets, and their `positions` in those sets end to end."""

    ids: IdArray
    positions: IdArray


class CandidateSets:
    """Class ids of every cluster or expert, ascending in each.

    ids: [n] int64, all sets end to end. offsets: [r + 1] int64, where each begins. count: r.
    sizes: [r] int32.
    unite: the union of the sets with these numbers. mask_new: which ids of the second of two sets are not in the
    first. Both cache their latest results.
    """

    def __init__(self, index: dict[str, npt.NDArray[Any]]) -> None:
        """index: `ids` and `offsets` of index.safetensors."""
        self.ids: IdArray = index["ids"]
        self.offsets: IdArray = index["offsets"]
        self.by_number: list[IdArray] = np.split(self.ids, self.offsets[1:-1])
        self.count = len(self.by_number)
        self.sizes = np.array([ids.size for ids in self.by_number], np.int32)
        self.smallest, self.largest = int(self.sizes.min()), int(self.sizes.max())
        self.unite = cache_unions(self.by_number)
        self.mask_new = cache_masks(self.by_number)


def cache_unions(sets: list[IdArray]) -> Callable[[tuple[int, ...]], Union]:
    """What unites the sets of given numbers; the latest unions are kept."""

    @lru_cache(maxsize=UNION_CACHE_ENTRIES)
    def unite(numbers: tuple[int, ...]) -> Union:
        return Union(*np.unique(np.concatenate([sets[number] for number in numbers]), return_index=True))

    return unite


def cache_masks(sets: list[IdArray]) -> Callable[[int, int], Mask]:
    """What says which ids of the second of two sets are not in the first; the latest masks are kept."""

    @lru_cache(maxsize=PAIR_CACHE_ENTRIES)
    def mask_new(first: int, second: int) -> Mask:
        return np.isin(sets[second], sets[first], assume_unique=True, invert=True)

    return mask_new
