"""Exact answers: the best classes of context vectors under all logits, computed chunk by chunk.

`compute_truth` is the only place that makes them. What gives a chunk's logits is a backend, a function from rows to
their best classes: a plan of the runtime (`rank_by_plan`), or in the exporter a torch module, and in the benchmarks
products in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import FloatArray, IdArray
from shortlist.errors import BadInput
from shortlist.plans.registry import Plan

from .ranking import EqualRuns, TrueClasses, concatenate_runs, rank_scores
from .statistics import compute_log_normalizers

TRUTH_CHUNK_ROWS = 64  # by default


@dataclass(frozen=True)
class Truth:
    """Exact answers: contexts [n, d], best (the m best classes), logprobs [n, m] float32, log_normalizer [n] float32.

    targets: [n] int64, the gold classes, where there are any.
    """

    contexts: FloatArray
    best: TrueClasses
    logprobs: FloatArray
    log_normalizer: FloatArray
    targets: IdArray | None = None

    @property
    def ids(self) -> IdArray:
        """The ids of `best`, [n, m] int64."""
        return self.best.ids

    @classmethod
    def from_tensors(cls, contexts: FloatArray, tensors: Mapping[str, npt.NDArray[Any]]) -> Truth:
        """What `to_tensors` gave for `contexts`."""
        best = TrueClasses.from_tensors(tensors)
        return cls(contexts, best, tensors["logprobs"], tensors["log_normalizer"])

    def to_tensors(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays by name but contexts and targets, for a safetensors file."""
        return self.best.to_tensors() | {"logprobs": self.logprobs, "log_normalizer": self.log_normalizer}

    def first_rows(self, rows: int) -> Truth:
        """The first `rows` rows, without targets."""
        best = self.best.first_rows(rows)
        return Truth(self.contexts[:rows], best, self.logprobs[:rows], self.log_normalizer[:rows])

    def take(self, rows: IdArray) -> Truth:
        """The rows of these numbers [m], which ascend, without targets."""
        return Truth(self.contexts[rows], self.best.take(rows), self.logprobs[rows], self.log_normalizer[rows])

    def take_every(self, step: int) -> Truth:
        """Every `step`-th row from the first, without targets."""
        return self.take(np.arange(0, len(self.contexts), step))

    def first_classes(self, depth: int) -> Truth:
        """The first `depth` classes of every row."""
        return replace(self, best=self.best.first_classes(depth), logprobs=self.logprobs[:, :depth])


class Ranking(NamedTuple):
    """The best k classes of b rows, with their scores: logits [b, k] float32, log_normalizer [b]."""

    best: TrueClasses
    logits: FloatArray
    log_normalizer: npt.NDArray[np.floating]

    @property
    def ids(self) -> IdArray:
        """The ids of `best`, [b, k] int64."""
        return self.best.ids


RankRows = Callable[[slice, int], Ranking]  # rows of the contexts and k -> their k best classes


def compute_truth(
    rank_rows: RankRows,
    contexts: FloatArray,
    depth: int,
    *,
    step: int = TRUTH_CHUNK_ROWS,
    progress: Callable[[int], None] | None = None,
    targets: IdArray | None = None,
) -> Truth:
    """Exact top `depth` of `contexts` [n, d], `step` rows at a time.

    rank_rows: the backend, over these contexts. progress: gets the number of rows done in each chunk. targets: [n]
    gold classes, kept beside the answers.
    """
    count = len(contexts)
    ids, levels = np.empty((2, count, depth), np.int64)  # filled in place: small results kept between the large
    logprobs = np.empty((count, depth), np.float32)  # logits of chunks would split the heap
    normalizers = np.empty(count, np.float32)
    runs: list[EqualRuns] = []
    for start in range(0, count, step):
        rows = slice(start, min(start + step, count))
        best, logits, log_normalizer = rank_rows(rows, depth)
        ids[rows], levels[rows] = best.ids, best.levels
        runs.append(best.runs._replace(rows=best.runs.rows + start))
        logprobs[rows] = logits - log_normalizer[:, None]
        normalizers[rows] = log_normalizer
        if progress is not None:
            progress(rows.stop - start)
    return Truth(contexts, TrueClasses(ids, levels, concatenate_runs(runs)), logprobs, normalizers, targets)


def rank_by_plan(plan: Plan, contexts: FloatArray, row_numbers: IdArray) -> RankRows:
    """The backend of a plan's whole distribution.

    row_numbers: [n], a row's position in the user's file, which BadInput names where scores overflow.
    """

    def rank_rows(rows: slice, k: int) -> Ranking:
        logits = plan.compute_distribution(contexts[rows])
        assert logits is not None, "an exact plan has a distribution"
        return rank_logits(check_logits(logits, row_numbers[rows]), k)

    return rank_rows


def rank_logits(logits: FloatArray, k: int) -> Ranking:
    """The k best of logits [b, V], best first, equal logits by lower id; the log-normalizer in float64."""
    best, best_logits = rank_scores(logits, k)
    return Ranking(best, best_logits.astype(np.float32, copy=False), compute_log_normalizers(logits))


def check_logits(logits: FloatArray, row_numbers: IdArray) -> FloatArray:
    """`logits` [b, V] themselves; raises BadInput that names the row of the file whose scores are no numbers."""
    check_sizes(logits.max(axis=1), row_numbers)
    return logits


def check_sizes(sizes: FloatArray, row_numbers: IdArray) -> None:
    """Raise BadInput where the largest logit or the log-normalizer of a row, in `sizes` [b], is not finite."""
    overflown = np.flatnonzero(~np.isfinite(sizes))
    if overflown.size:
        raise BadInput(
            f"contexts row {row_numbers[overflown[0]]} is so large that its scores overflow float32: scale it down"
        )
