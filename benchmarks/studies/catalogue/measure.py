"""Recall and times of one call on a catalogue, and the truth that both are held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from shortlist.bundle.manifest import Strict
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.timing import Call, time_calls

CHUNK_ITEMS = 1 << 16  # scored at once
WORST_SHARE = 0.01
MOST_SECONDS = 60.0  # of one timing


class Recall(NamedTuple):
    """Shares of the true k best that were returned: in the mean, and of the row that one in a hundred is under."""

    mean: float
    worst: float


class Pace(Strict):
    """Microseconds of a call for one user."""

    mean: float
    median: float
    p99: float


def find_best(items: FloatArray, users: FloatArray, k: int) -> IdArray:
    """Ids [n, k] of the items [V, d] with the largest products with users [n, d], best first, a chunk at a time."""
    ids = np.zeros((len(users), 0), np.int64)
    scores = np.zeros((len(users), 0), np.float32)
    for start in range(0, len(items), CHUNK_ITEMS):
        part = users @ items[start : start + CHUNK_ITEMS].T
        top = np.argpartition(-part, min(k, part.shape[1]) - 1, axis=1)[:, :k]
        ids = np.concatenate([ids, start + top], axis=1)
        scores = np.concatenate([scores, np.take_along_axis(part, top, axis=1)], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        ids, scores = np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1)
    return ids


def measure_recall(call: Callable[[FloatArray], IdArray], users: FloatArray, true: IdArray) -> Recall:
    """Recall of a call that gives ids [1, k] of one user; true: [n, k]."""
    answers = [call(users[row : row + 1])[0] for row in range(len(users))]
    shares = np.array([np.isin(best, ids).mean() for best, ids in zip(true, answers, strict=True)])
    return Recall(float(shares.mean()), float(np.quantile(shares, WORST_SHARE)))


def time_users(calls: Mapping[str, Call], users: FloatArray) -> dict[str, Pace]:
    """Every call on the same users, one at a time, in one interleaved run."""
    times = time_calls(calls, users, 1, max_seconds=MOST_SECONDS)
    return {name: Pace.model_validate(one.summarize()) for name, one in times.items()}
