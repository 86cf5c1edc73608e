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
from shortlist.plans.common.selection import largest
from shortlist_exporter.inputs.sources import Dense

from benchmarks.contenders.base import Contender, FloatArray, IdArray, Options
from benchmarks.contenders.basis import basis_of, rescored

SHALLOW = 16  # the first reading goes to B / SHALLOW
SHARES = (128, 64, 32, 16, 8, 4, 2)  # V / B

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
        """The largest budget."""
        return int(self.values.shape[2])

    def first(self, query: FloatArray, axes: npt.NDArray[np.intp], depth: int) -> tuple[FloatArray, Rows]:
        """Entries [len(axes), depth] of the lists of `axes`, largest first, and their rows."""
        sign = (query[axes] < 0).astype(np.intp)
        return self.values[sign, axes, :depth] * query[axes, None], self.rows[sign, axes, :depth]


def sorted_lists(rows: FloatArray, limit: int) -> SortedLists:
    """Lists of `rows` [V, D], each cut to `limit` <= V."""
    order = np.argsort(rows.T, axis=1, kind="stable").astype(np.int32)
    both = np.stack([order[:, ::-1][:, :limit], order[:, :limit]])
    return SortedLists(np.take_along_axis(rows.T[None], both, axis=2), both)


def visited(lists: SortedLists, query: FloatArray, budget: int) -> Rows:
    """The first `budget` (at most `lists.limit`) different rows that the greedy visit of `query` [D] meets, in turn."""
    budget = min(budget, lists.limit)
    axes = np.arange(query.size)
    entries, rows = lists.first(query, axes, -(-budget // SHALLOW))
    found, bar = first_different(entries.ravel(), rows.ravel(), budget)
    open_still = entries[:, -1] >= bar
    if not open_still.any():
        return found
    more, their_rows = lists.first(query, axes[open_still], budget)
    above = more >= bar
    entries = np.concatenate([entries[~open_still].ravel(), more[above]])
    rows = np.concatenate([rows[~open_still].ravel(), their_rows[above]])
    return first_different(entries, rows, budget)[0]


def first_different(entries: FloatArray, rows: Rows, budget: int) -> tuple[Rows, float]:
    """The first `budget` different `rows` [m] by descending `entries` [m], and the last one's entry.

    Where there are fewer rows: all of them, and -inf.
    """
    count = 2 * budget
    while True:
        kept = largest(entries, count)
        kept = kept[np.argsort(-entries[kept], kind="stable")]
        first = np.sort(np.unique(rows[kept], return_index=True)[1])[:budget]
        if first.size == budget:
            return rows[kept[first]], float(entries[kept[first[-1]]])
        if count >= entries.size:
            return rows[kept[first]], -np.inf
        count *= 4


class GreedyMips(Contender):
    """Setting `budget`: B, the rows scored exactly."""

    name: ClassVar[str] = "GreedyMIPS"
    quick: ClassVar[bool] = False

    @classmethod
    def grid(cls, dense: Dense) -> list[Options]:
        """See Contender.grid; the method depends on its axes."""
        del dense
        return [{"basis": basis} for basis in ("raw", "whitened")]

    def fit(self, dense: Dense, contexts: FloatArray) -> None:
        """See Contender.fit."""
        self.dense = dense
        self.basis = basis_of(self.build["basis"], dense, contexts)
        self.lists = sorted_lists(self.basis.rows, max(1, len(self.basis.ids) // SHARES[-1]))

    def settings(self) -> list[Options]:
        """See Contender.settings; up to half of the classes."""
        return [{"budget": budget} for budget in sorted({max(1, len(self.basis.ids) // share) for share in SHARES})]

    def topk(self, contexts: FloatArray, k: int) -> IdArray:
        """See Contender.topk."""
        budget = self.setting.get("budget", self.lists.limit)
        found = [visited(self.lists, query, budget) for query in self.basis.queries(contexts)]
        return rescored(self.dense, contexts, self.basis.ids[np.stack(found)], k)

    def size(self) -> int:
        """See Contender.size."""
        change = 0 if self.basis.change is None else self.basis.change.nbytes
        return self.lists.values.nbytes + self.lists.rows.nbytes + change + self.dense.weight.nbytes


CONTENDERS: tuple[type[Contender], ...] = (GreedyMips,)
