"""GreedyMIPS (Yu, Hsieh, Lei and Dhillon, "A Greedy Approach for Budgeted Maximum Inner Product Search", NIPS 2017).

An inner product is a sum of D entries q_t x_jt. The entries of all rows are visited from the largest down, by a heap
over D sorted lists, until B different rows have been met; those are scored exactly.

The heap is replaced by an array form with the same answer. A row is first met at its largest entry, so the rows
met are the B with the largest max_t q_t x_jt (`tests` hold the one against the other). And an entry at place r of its
list comes after r - 1 other rows, so no list is read further than B. The lists are read a little way first; that
bounds the last entry from below, and only lists still above that bound are read further.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from shortlist.plans.common.selection import find_largest
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options, spread_settings
from benchmarks.contenders.basis import BASES, load_basis, rescore_candidates

FIRST_READ_SHARE = 16  # the first reading goes to B / FIRST_READ_SHARE
CLASSES_PER_BUDGET = (128, 64, 32, 16, 8, 4, 2)  # V / B

Rows = npt.NDArray[np.int32]


@dataclass(frozen=True)
class SortedLists:
    """The paper's conditional iterators: for each sign of q_t and each axis t, rows in the order of q_t x_jt.

    values: [2, D, limit] float32, for positive and for negative q_t. rows: [2, D, limit] int32.
    """

    values: FloatArray
    rows: Rows

    @property
    def limit(self) -> int:
        return int(self.values.shape[2])

    def first(self, query: FloatArray, axes: npt.NDArray[np.intp], depth: int) -> tuple[FloatArray, Rows]:
        """Entries [len(axes), depth] of the lists of `axes`, largest first, and their rows."""
        sign = (query[axes] < 0).astype(np.intp)
        return self.values[sign, axes, :depth] * query[axes, None], self.rows[sign, axes, :depth]


def sort_lists(rows: FloatArray, limit: int) -> SortedLists:
    """Lists of `rows` [V, D], each cut to `limit` <= V."""
    order = np.argsort(rows.T, axis=1, kind="stable").astype(np.int32)
    both = np.stack([order[:, ::-1][:, :limit], order[:, :limit]])
    return SortedLists(np.take_along_axis(rows.T[None], both, axis=2), both)


def visit_rows(lists: SortedLists, query: FloatArray, budget: int) -> Rows:
    """The first `budget` (at most `lists.limit`) different rows that the greedy visit of `query` [D] meets, in turn."""
    budget = min(budget, lists.limit)
    axes = np.arange(query.size)
    entries, rows = lists.first(query, axes, -(-budget // FIRST_READ_SHARE))
    candidates, bar = take_first_different(entries.ravel(), rows.ravel(), budget)
    open_still = entries[:, -1] >= bar
    if not open_still.any():
        return candidates
    more, their_rows = lists.first(query, axes[open_still], budget)
    above = more >= bar
    entries = np.concatenate([entries[~open_still].ravel(), more[above]])
    rows = np.concatenate([rows[~open_still].ravel(), their_rows[above]])
    return take_first_different(entries, rows, budget)[0]


def take_first_different(entries: FloatArray, rows: Rows, budget: int) -> tuple[Rows, float]:
    """The first `budget` different `rows` [m] by descending `entries` [m], and the last one's entry.

    Where there are fewer rows: all of them, and -inf.
    """
    count = 2 * budget
    while True:
        top = find_largest(entries, count)
        top = top[np.argsort(-entries[top], kind="stable")]
        first = np.sort(np.unique(rows[top], return_index=True)[1])[:budget]
        if first.size == budget:
            return rows[top[first]], float(entries[top[first[-1]]])
        if count >= entries.size:
            return rows[top[first]], -np.inf
        count *= 4


class GreedyMips(Contender):
    """Setting `budget`: B, the rows scored exactly."""

    name: ClassVar[str] = "GreedyMIPS"
    builds: ClassVar[tuple[Options, ...]] = tuple({"basis": basis} for basis in BASES)
    quick: ClassVar[bool] = False

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        self.dense = dense
        self.basis = load_basis(self.build["basis"], dense, contexts)
        self.lists = sort_lists(self.basis.rows, max(1, len(self.basis.ids) // CLASSES_PER_BUDGET[-1]))

    def settings(self) -> list[Options]:
        """Up to half of the classes."""
        return spread_settings("budget", len(self.basis.ids), CLASSES_PER_BUDGET)

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        budget = self.setting.get("budget", self.lists.limit)
        candidates = [visit_rows(self.lists, query, budget) for query in self.basis.queries(contexts)]
        return rescore_candidates(self.dense, contexts, self.basis.ids[np.stack(candidates)], k)

    def size(self) -> int:
        return self.lists.values.nbytes + self.lists.rows.nbytes + self.basis.change_bytes + self.dense.weight.nbytes
