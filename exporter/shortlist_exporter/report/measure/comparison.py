"""A head beside its query-time options and the dense head, on the same rows: precision, times, cost."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from shortlist.core.filters import UNRESTRICTED
from shortlist.evaluation.statistics import choose_depths
from shortlist.evaluation.timing import Call, CallTimes, compute_median_speedup, time_calls
from shortlist.head import Head
from shortlist.plans.registry import Plan

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.records.report import Point

from .answers import Answers, answer_sample
from .samples import Sample
from .variants import make_variants

THIS_HEAD = "this head"
SHARED_ROWS, LEAST_SHARED_ROWS = 1024, 256  # at most and least, on which every query-time option is compared
SHARED_LOGITS = 1 << 26  # of all their classes: fewer rows of larger layers
REPORT_TIMED_K = 5  # classes asked for while timing
SINGLE_SECONDS = 2.0  # of timing single rows
TIMED_BATCHES = (8, 32)  # rows
BATCH_SECONDS = 0.5  # of timing one of them
BLOCK_ROWS = 20  # of one contender before the next has its turn


def compare_plans(head: Head, sample: Sample, own: Answers) -> tuple[list[Point], dict[int, float], int]:
    """This head, its options and the dense head on the same rows; times over dense's by batch; rows timed.

    own: this head's answers to the sample.
    """
    rows = count_shared_rows(head, sample)
    shared_sample, variants = first_rows(sample, rows), make_variants(head, sample.contexts[:rows])
    dense = head.dense if head.dense is not head.plan else None
    plans = {THIS_HEAD: head.plan} | variants | ({"dense": dense} if dense else {})
    calls = {label: make_call(head, plan) for label, plan in plans.items()}
    times = time_calls(calls, shared_sample.contexts, 1, block=count_block_calls(1), max_seconds=SINGLE_SECONDS)
    answers = {THIS_HEAD: own.first_rows(rows)}
    answers |= {label: answer_sample(head, plan, shared_sample) for label, plan in variants.items()}
    candidates = float(answers[THIS_HEAD].top.scored.mean())
    points = [make_point(head, label, one, times, candidates) for label, one in answers.items()]
    timed = times[THIS_HEAD].seconds.size
    if dense is None:
        return points, {}, timed
    return [*points, make_dense_point(head, times, sample)], compare_batches(calls, sample.contexts, times), timed


def count_shared_rows(head: Head, sample: Sample) -> int:
    """How many of the sample's rows every query-time option answers."""
    return min(len(sample.contexts), SHARED_ROWS, max(LEAST_SHARED_ROWS, SHARED_LOGITS // head.manifest.classes))


def first_rows(sample: Sample, rows: int) -> Sample:
    truth = None if sample.truth is None else sample.truth.first_rows(rows)
    return Sample(sample.name, sample.contexts[:rows], truth)


def make_point(
    head: Head, label: str, answers: Answers, times: Mapping[str, CallTimes], head_candidates: float
) -> Point:
    """One plan's figures. Its multiply-adds are the export's, but for the classes that it scores more or less.

    own_scored: mean of the classes that the head as it is scores.
    """
    quality, candidates = head.manifest.quality, float(answers.top.scored.mean())
    return Point(
        label=label,
        kind="this head" if label == THIS_HEAD else "its options",
        precision={k: share.mean for k, share in answers.estimate_precision().items()},
        us=float(np.median(times[label].seconds) * 1e6),
        times_dense=compute_median_speedup(times["dense"], times[label], count_block_calls(1))
        if "dense" in times
        else None,
        macs=None if quality is None else quality.cost_macs + (candidates - head_candidates) / head.manifest.classes,
        scored=candidates,
    )


def make_dense_point(head: Head, times: Mapping[str, CallTimes], sample: Sample) -> Point:
    """The dense head: right by definition where it is the reference, of no known precision where it is not."""
    truth = sample.truth if head.manifest.reference == "dense" else None
    right = {k: 1.0 for k in choose_depths(0 if truth is None else truth.ids.shape[1])}
    us = float(np.median(times["dense"].seconds) * 1e6)
    return Point(label="dense", kind="dense", precision=right, us=us, times_dense=1.0, macs=1.0)


def compare_batches(
    calls: Mapping[str, Call], contexts: FloatArray, single: Mapping[str, CallTimes]
) -> dict[int, float]:
    """Batch -> dense's time over this head's, for batches that the rows fill."""
    pair = {name: calls[name] for name in (THIS_HEAD, "dense")}
    times_by_batch = {1: single} | {
        batch: time_calls(pair, contexts, batch, block=count_block_calls(batch), max_seconds=BATCH_SECONDS)
        for batch in TIMED_BATCHES
    }
    return {
        batch: compute_median_speedup(times["dense"], times[THIS_HEAD], count_block_calls(batch))
        for batch, times in times_by_batch.items()
        if times["dense"].seconds.size
    }


def count_block_calls(batch: int) -> int:
    """How many calls of one contender are timed in a row: about `BLOCK_ROWS` rows."""
    return max(2, BLOCK_ROWS // batch)


def make_call(head: Head, plan: Plan) -> Call:
    """A call of the plan for the k classes that are asked for while timing."""
    k = min(REPORT_TIMED_K, head.manifest.max_k)
    return lambda rows: head.run(plan, rows, k, UNRESTRICTED).ids
