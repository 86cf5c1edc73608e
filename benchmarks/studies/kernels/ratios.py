"""Figures of one process: requests with lists and large k beside plain ones, and heads beside dense."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from shortlist.core.results import FloatArray, IdArray
from shortlist.evaluation.statistics import compute_precision
from shortlist.evaluation.timing import BLOCK_CALLS, Call, compute_median_speedup, find_fastest, time_calls
from shortlist.head import Head
from shortlist_exporter.inputs.sources import Dense

from benchmarks.common.dense import open_spellings
from benchmarks.datasets.registry import DataSet
from benchmarks.sweep.harness import limit_threads

TIMED_K = 5
BANNED, ALLOWED, LARGE_K = 1000, 200, 100
MOST_SECONDS = 20.0  # of one comparison


def compute_list_ratio(head: Head, data: DataSet, rows: FloatArray) -> float:
    """The largest time of requests with lists or a large k, over that of k = 5 without, at batch 1.

    Half of each list are the commonest best classes, which searches find first, half are random ones.
    """
    banned, allowed = (mix_classes(data, count) for count in (BANNED, ALLOWED))
    calls: dict[str, Call] = {
        "plain": lambda some: head.topk(some, TIMED_K).ids,
        "ban": lambda some: head.topk(some, TIMED_K, ban=banned).ids,
        "allow": lambda some: head.topk(some, TIMED_K, allow=allowed).ids,
        "k": lambda some: head.topk(some, LARGE_K).ids,
    }
    times = time_calls(calls, rows, 1, max_seconds=MOST_SECONDS)
    return max(
        1 / compute_median_speedup(times["plain"], times[name], BLOCK_CALLS) for name in calls if name != "plain"
    )


def mix_classes(data: DataSet, count: int) -> IdArray:
    """So many distinct classes."""
    best, often = np.unique(data.test.best.ids[:, 0], return_counts=True)
    common = best[np.argsort(-often, kind="stable")][: count // 2]
    others = np.setdiff1d(np.arange(data.dense.classes), np.concatenate([common, data.dense.padded]))
    return np.concatenate([common, np.random.default_rng(0).choice(others, count - common.size, replace=False)])


def compute_dense_speedups(
    dense: Dense, folder: Path, calls: Mapping[str, Call], rows: FloatArray, batch: int
) -> dict[str, float]:
    """Dense's time over that of each call, by one thread; dense is the fastest of its spellings at this batch."""
    spellings: dict[str, Call] = {
        name: lambda some, topk=topk: topk(some, TIMED_K)  # type: ignore[misc]
        for name, topk in open_spellings(dense, folder, 1).items()
    }
    with limit_threads(1, own_threads=False):
        fastest = spellings[find_fastest(spellings, rows, batch)]
        times = time_calls({"dense": fastest, **calls}, rows, batch, max_seconds=MOST_SECONDS)
    return {name: compute_median_speedup(times["dense"], times[name], BLOCK_CALLS) for name in calls}


def measure_best_share(head: Head, data: DataSet) -> float:
    """P@1 of the head's plan over all of test."""
    return compute_precision(head.topk_by_plan(data.test.contexts, TIMED_K).ids, data.test.best, 1)
