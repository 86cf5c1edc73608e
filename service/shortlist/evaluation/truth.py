"""Exact answers: the best classes of context vectors under all logits, computed chunk by chunk.

`compute_truth` is the only place that makes them. What gives a chunk's logits is a backend, a function from rows to
their best classes: a plan of the runtime (`rank_by_plan`), or in the exporter a torch module, and in the benchmarks
products in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shortlist.core.results import NO_CLASS, FloatArray, IdArray
from shortlist.errors import BadInput
from shortlist.plans.common.selection import rank_best
from shortlist.plans.registry import Plan

from .statistics import compute_log_normalizers

TRUTH_CHUNK_ROWS = 64  # by default


@dataclass(frozen=True)
class Truth:
    """Exact answers: contexts [n, d], ids [n, m] int64, logprobs [n, m] float32, log_normalizer [n] float32.

    ids are best first, -1 where fewer than m classes have a probability over 0. targets: [n] int64, the gold classes,
    where there are any.
    """

    contexts: FloatArray
    ids: IdArray
    logprobs: FloatArray
    log_normalizer: FloatArray
    targets: IdArray | None = None

    def first_rows(self, rows: int) -> Truth:
        """A copy that holds the first `rows` rows; targets are left out."""
        return Truth(self.contexts[:rows], self.ids[:rows], self.logprobs[:rows], self.log_normalizer[:rows])


class Ranking(NamedTuple):
    """The best classes of some rows: ids [b, k] int64 best first, logits [b, k] float32, log_normalizer [b]."""

    ids: IdArray
    logits: FloatArray
    log_normalizer: npt.NDArray[np.floating]


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
    ids = np.empty((count, depth), np.int64)  # filled in place: small results kept between the large
    logprobs = np.empty((count, depth), np.float32)  # logits of chunks would split the heap
    normalizers = np.empty(count, np.float32)
    for start in range(0, count, step):
        rows = slice(start, min(start + step, count))
        ranking = rank_rows(rows, depth)
        ids[rows] = drop_impossible(ranking.ids, ranking.logits)
        logprobs[rows] = ranking.logits - ranking.log_normalizer[:, None]
        normalizers[rows] = ranking.log_normalizer
        if progress is not None:
            progress(rows.stop - start)
    return Truth(contexts, ids, logprobs, normalizers, targets)


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
    ids = np.stack([rank_best(row, k) for row in logits])
    best = np.take_along_axis(logits, ids, axis=1)
    return Ranking(drop_impossible(ids, best), best, compute_log_normalizers(logits))


def drop_impossible(ids: IdArray, logits: FloatArray) -> IdArray:
    """`ids` [b, k] with -1 beside logits of -inf: classes of probability 0 are no answers."""
    return np.where(np.isneginf(logits), NO_CLASS, ids)


def check_logits(logits: FloatArray, row_numbers: IdArray) -> FloatArray:
    """`logits` [b, V] themselves; raises BadInput that names the row of the file whose scores are no numbers."""
    overflown = np.flatnonzero(~np.isfinite(logits.max(axis=1)))
    if overflown.size:
        raise BadInput(f"contexts row {row_numbers[overflown[0]]} is so large that its scores overflow: scale it down")
    return logits
