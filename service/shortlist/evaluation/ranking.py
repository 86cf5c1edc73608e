"""The true best classes of rows by their exact scores, and which classes have equal ones.

Equal scores leave open which class belongs to the k best. Ids alone do not tell, so a ranking also holds which of its
classes are equal, and which further classes equal its last one. Scores are compared within the runtime that gave them
all, never between two runtimes, whose last bits differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import NO_CLASS, IdArray
from shortlist.plans.common.selection import rank_best

Bools = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.floating]


class EqualRuns(NamedTuple):
    """Classes `starts`..`stops` - 1 of `rows`, each [t] int64, ascending by row and start."""

    rows: IdArray
    starts: IdArray
    stops: IdArray


def make_no_runs() -> EqualRuns:
    """No runs of any row."""
    return EqualRuns(*(np.empty(0, np.int64) for _ in EqualRuns._fields))


@dataclass(frozen=True)
class TrueClasses:
    """The m best classes of n rows, best first, equal scores by lower id, and the classes of equal score.

    ids: [n, m] int64, -1 where fewer than m classes have a probability over 0. levels: [n, m] int64, the rank, from 0,
    of the first class with this score: two classes of a row are equal where their levels are. runs: the classes beyond
    these m whose score is that of the last.
    """

    ids: IdArray
    levels: IdArray
    runs: EqualRuns

    @classmethod
    def without_ties(cls, ids: IdArray) -> TrueClasses:
        """`ids` [n, m] of classes no two of which have equal scores."""
        return cls(ids, np.broadcast_to(np.arange(ids.shape[1]), ids.shape), make_no_runs())

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, npt.NDArray[Any]]) -> TrueClasses:
        """What `to_tensors` gave; without equal scores where `tensors` hold the ids alone."""
        if "levels" not in tensors:
            return cls.without_ties(tensors["ids"])
        runs = EqualRuns(*(tensors[f"equal_{name}"] for name in EqualRuns._fields))
        return cls(tensors["ids"], tensors["levels"], runs)

    def to_tensors(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays by name, for a safetensors file."""
        runs = {f"equal_{name}": values for name, values in self.runs._asdict().items()}
        return {"ids": self.ids, "levels": np.ascontiguousarray(self.levels)} | runs

    def first_rows(self, rows: int) -> TrueClasses:
        """The first `rows` rows."""
        end = int(np.searchsorted(self.runs.rows, rows))
        return TrueClasses(self.ids[:rows], self.levels[:rows], EqualRuns(*(part[:end] for part in self.runs)))

    def take(self, rows: IdArray) -> TrueClasses:
        """The rows of these numbers [m], which ascend."""
        numbers, starts, stops = (part[np.isin(self.runs.rows, rows)] for part in self.runs)
        return TrueClasses(self.ids[rows], self.levels[rows], EqualRuns(np.searchsorted(rows, numbers), starts, stops))

    def first_classes(self, depth: int) -> TrueClasses:
        """The first `depth` classes of each row; those after them that equal the last one become runs."""
        if depth >= self.ids.shape[1]:
            return self
        level = self.levels[:, depth - 1]
        rows, places = np.nonzero(self.levels[:, depth:] == level[:, None])
        ids = self.ids[rows, depth + places]
        reaching = self.levels[self.runs.rows, -1] == level[self.runs.rows]
        parts = EqualRuns(rows, ids, ids + 1), EqualRuns(*(part[reaching] for part in self.runs))
        runs = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        order = np.lexsort((runs[1], runs[0]))
        return TrueClasses(self.ids[:, :depth], self.levels[:, :depth], EqualRuns(*(part[order] for part in runs)))

    def count_equal(self, ids: IdArray, rank: int) -> IdArray:
        """[n]: how many of `ids` [n, j] have the score of the class at `rank`, from 0."""
        level = self.levels[:, rank, None]
        equal = (self.levels == level) & (self.ids != NO_CLASS)
        classes = 2 + max(int(part.max(initial=0)) for part in (ids, self.ids, self.runs.stops))  # with -1
        base = classes * np.arange(len(ids), dtype=np.int64)  # ids of different rows never meet
        keys = ids + base[:, None]
        inside = np.isin(keys, (self.ids + base[:, None])[equal])
        beyond = self.find_in_runs(keys, base) & (self.levels[:, -1:] == level)
        return np.asarray((inside | beyond).sum(axis=1))

    def find_in_runs(self, keys: IdArray, base: IdArray) -> Bools:
        """Whether classes are in runs of their rows. keys: [n, j] ids plus their row's number of `base` [n]."""
        rows, starts, stops = self.runs
        if not rows.size:
            return np.zeros(keys.shape, np.bool_)
        place = np.searchsorted(base[rows] + starts, keys, side="right") - 1
        return np.asarray((place >= 0) & (keys < (base[rows] + stops)[place]))


def rank_scores(scores: Scores, k: int, ids: IdArray | None = None) -> tuple[TrueClasses, Scores]:
    """The k best of each row of `scores` [b, m], and their scores [b, k]; -1 beside -inf, which equals nothing.

    ids: [b, m] ascending, the classes that the scores are of; 0..m-1 by default.
    """
    order = np.stack([rank_best(row, k + 1) for row in scores])  # one more tells whether the last has equals beyond
    ranked = np.take_along_axis(scores, order, axis=1)
    best = ranked[:, :k]
    levels = find_levels(best)
    open_rows = np.flatnonzero((ranked[:, k:] == best[:, -1:]).any(axis=1) & np.isfinite(best[:, -1]))
    runs = [
        find_runs(row, np.flatnonzero(scores[row] == best[row, -1])[k - levels[row, -1] :], ids)
        for row in open_rows.tolist()
    ]
    classes = order[:, :k] if ids is None else np.take_along_axis(ids, order[:, :k], axis=1)
    return TrueClasses(drop_impossible(classes, best), levels, concatenate_runs(runs)), best


def find_levels(best: Scores) -> IdArray:
    """[n, k]: the rank of the first of `best` [n, k], best first, with the same score; -inf equals nothing."""
    levels = np.broadcast_to(np.arange(best.shape[1]), best.shape).copy()
    levels[:, 1:][(best[:, 1:] == best[:, :-1]) & np.isfinite(best[:, 1:])] = 0
    return np.maximum.accumulate(levels, axis=1)


def find_runs(row: int, places: IdArray, ids: IdArray | None) -> EqualRuns:
    """The runs of one row that the classes at ascending `places` [t], at least one, make up."""
    classes = places if ids is None else ids[row, places]
    ends = np.flatnonzero(np.diff(classes) != 1)
    starts, stops = classes[np.r_[0, ends + 1]], classes[np.r_[ends, -1]] + 1
    return EqualRuns(np.full(starts.size, row, np.int64), starts, stops)


def concatenate_runs(parts: Sequence[EqualRuns]) -> EqualRuns:
    """The runs of all parts, in their order."""
    return EqualRuns(*(np.concatenate(columns) for columns in zip(make_no_runs(), *parts, strict=True)))


def drop_impossible(ids: IdArray, scores: Scores) -> IdArray:
    """`ids` [b, k] with -1 beside scores of -inf: classes of probability 0 are no answers."""
    return np.where(np.isneginf(scores), NO_CLASS, ids)
