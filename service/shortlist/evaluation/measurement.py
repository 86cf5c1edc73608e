"""Rows of contexts through a head and its reference, chunk by chunk, and the figures of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.core.filters import ClassFilter
from shortlist.core.results import DoubleArray, FloatArray, IdArray, PlanResult
from shortlist.errors import BadInput
from shortlist.head import Head

from . import statistics
from .ranking import TrueClasses
from .statistics import PRECISION_DEPTHS, choose_depths, mark_hits
from .truth import Ranking, check_logits, check_sizes, rank_logits

COVERAGE_SIZES = (10, 50, 100, 500, 1000)  # classes; SVD-softmax, Tables 1 and 2


@dataclass(frozen=True)
class Chunk:
    """Some rows with the plan's answers.

    rows: [b] positions in the user's file. contexts: [b, d]. targets: [b] or None. head_logits, true_logits,
    dense_logits: [b, V] of the head, of its reference and of dense, None where there are none. tops: the plan's answers
    to requests for k classes, by k.
    """

    rows: IdArray
    contexts: FloatArray
    targets: IdArray | None
    head_logits: FloatArray | None
    true_logits: FloatArray | None
    dense_logits: FloatArray | None
    tops: dict[int, PlanResult]


@dataclass(frozen=True)
class AskedRows:
    """Requests for k classes. hits: [b], share of the k true ones returned. risk: [b], NaN where none is estimated."""

    hits: DoubleArray
    risk: DoubleArray


@dataclass(frozen=True)
class TruthRows:
    """Figures of each row that need the truth.

    hits: k -> [b], share of the k true classes that a request for k returned. coverage: m -> [b], how many of the true
    top m are in the head's top m. order_kept, z_ratio, error, best_first: of the request for ten. order_kept: [b], 1
    where they came in the true order. z_ratio: [b], Z~/Z. error: [b, k], |error| of the log-probabilities returned,
    nats. best_first: [b], 1 where the best class came first. kl: [b], KL(reference || head), nats. asked: of each k
    that the caller names.
    """

    hits: dict[int, DoubleArray]
    coverage: dict[int, DoubleArray]
    order_kept: DoubleArray
    z_ratio: DoubleArray
    error: DoubleArray
    best_first: DoubleArray
    kl: DoubleArray | None
    asked: dict[int, AskedRows]


@dataclass(frozen=True)
class TargetRows:
    """Figures of each row on its gold class.

    hits: k -> [b], 1 where it is among the k that a request for k returned. nll: [b], nats, under the whole
    distribution. scored_nll: [b], by the log-probability that is answered for that class alone.
    """

    hits: dict[int, DoubleArray]
    nll: DoubleArray | None
    scored_nll: DoubleArray | None


@dataclass(frozen=True)
class RowFigures:
    """Every figure of each row; None where it cannot be had. scored: [b], classes scored by the plan."""

    scored: DoubleArray
    truth: TruthRows | None
    head_targets: TargetRows | None
    dense_targets: TargetRows | None


def choose_distinct_rows(contexts: FloatArray, count: int, seed: int) -> IdArray:
    """Positions of at most `count` different rows of `contexts` [n, d], in random order; raises BadInput for none."""
    if count < 1:
        raise BadInput(f"rows is {count}: measure at least 1")
    if not len(contexts):
        raise BadInput("contexts have no rows: give at least 1")
    positions: dict[bytes, int] = {}
    for row in np.random.default_rng(seed).permutation(len(contexts)):
        positions.setdefault(contexts[row].tobytes(), row)
        if len(positions) == count:
            break
    return np.array(list(positions.values()), np.int64)


def check_targets(head: Head, contexts: FloatArray, targets: npt.ArrayLike) -> IdArray:
    """`targets` as [n] int64; raises BadInput unless each is a class that can be answered."""
    gold = np.asarray(targets)
    if gold.shape != (len(contexts),):
        raise BadInput(f"targets have shape {list(gold.shape)} for {len(contexts)} contexts: give one for each")
    if gold.size and gold.dtype.kind not in "iu":
        raise BadInput(f"targets are {gold.dtype}: give whole numbers")
    classes = head.manifest.classes
    wrong = np.flatnonzero((gold < 0) | (gold >= classes))
    if wrong.size:
        raise BadInput(f"targets row {wrong[0]} is {gold[wrong[0]]} but classes go from 0 to {classes - 1}")
    gold = gold.astype(np.int64)
    if head.is_own_reference:
        return gold  # probability 0 is no sign of padding there
    ids = np.unique(gold)
    padding = ids[np.isneginf(head.logprobs(np.zeros((1, head.manifest.dim)), ids[None])[0])]
    if padding.size:
        raise BadInput(f"targets hold class {padding[0]}, which is padding of {head.manifest.name}: give real classes")
    return gold


def check_documents(contexts: FloatArray, documents: npt.ArrayLike) -> IdArray:
    """`documents` as [n] whole numbers; raises BadInput unless there is one for each of `contexts` [n, d]."""
    owners = np.asarray(documents)
    if owners.shape != (len(contexts),) or owners.dtype.kind not in "iu":
        shape, count = list(owners.shape), len(contexts)
        raise BadInput(f"documents are {owners.dtype} of shape {shape} for {count} contexts: give a number for each")
    return owners


def limit_depth(head: Head) -> int:
    """The most classes of which every figure is measured: ten, where the head answers as many."""
    return min(max(PRECISION_DEPTHS), head.manifest.max_k)


def read_chunks(
    head: Head, contexts: FloatArray, targets: IdArray | None, order: IdArray, depths: Sequence[int] = ()
) -> Iterator[Chunk]:
    """The rows in `order`, as many at a time as fit the memory of one plan's scores; raises BadInput.

    depths: each k that is asked for besides those whose P@k are always reported.
    """
    step, most = (head.exact or head.plan).max_rows(), limit_depth(head)
    depths = sorted({*choose_depths(most), most, *depths})
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        part = contexts[rows]
        tops = {k: head.run(head.plan, part, k, ClassFilter()) for k in depths}
        check_sizes(tops[most].log_normalizer, rows)
        true_logits = None if head.exact is None else check_any_logits(head.exact.compute_distribution(part), rows)
        yield Chunk(
            rows=rows,
            contexts=part,
            targets=None if targets is None else targets[rows],
            head_logits=check_any_logits(head.plan.compute_distribution(part), rows),
            true_logits=true_logits,
            dense_logits=true_logits if head.exact is head.dense else compute_dense_logits(head, part),
            tops=tops,
        )


def compute_dense_logits(head: Head, contexts: FloatArray) -> FloatArray | None:
    """Logits [b, V] of the dense head beside a head that is its own reference; None where the bundle has none."""
    return None if head.dense is None else head.dense.compute_distribution(contexts)


def check_any_logits(logits: FloatArray | None, rows: IdArray) -> FloatArray | None:
    """As `check_logits`, of logits that a plan may not have."""
    return None if logits is None else check_logits(logits, rows)


def measure_chunk(head: Head, chunk: Chunk, depths: Sequence[int] = ()) -> RowFigures:
    """Every figure that the chunk allows; also of requests for each k of `depths`, which were among the chunk's."""
    most, targets = limit_depth(head), chunk.targets
    ids, dense_targets = {k: chunk.tops[k].ids for k in choose_depths(most)}, None
    if targets is not None and chunk.dense_logits is not None:
        dense_ids = dict.fromkeys(ids, rank_logits(chunk.dense_logits, most).ids)
        dense_targets = measure_targets(dense_ids, chunk.dense_logits, None, targets)
    return RowFigures(
        scored=chunk.tops[most].scored.astype(np.float64),
        truth=None if chunk.true_logits is None else measure_against_truth(head, chunk, chunk.true_logits, depths),
        head_targets=None
        if targets is None
        else measure_targets(ids, chunk.head_logits, score_targets(head, chunk.contexts, targets), targets),
        dense_targets=dense_targets,
    )


def measure_against_truth(head: Head, chunk: Chunk, true_logits: FloatArray, depths: Sequence[int]) -> TruthRows:
    """The figures that need the reference's logits [b, V]."""
    most = limit_depth(head)
    top, sizes = chunk.tops[most], [size for size in COVERAGE_SIZES if size <= head.manifest.max_k]
    true = rank_logits(true_logits, max([*sizes, *depths, most]))
    return TruthRows(
        hits={k: mark_hits(chunk.tops[k].ids, true.best, k).mean(axis=1) for k in choose_depths(most)},
        coverage={size: count_true_candidates(head, chunk, true.best, size) for size in sizes},
        order_kept=(top.ids == true.ids[:, :most]).all(axis=1).astype(np.float64),
        z_ratio=statistics.compute_ratios(top.log_normalizer, true.log_normalizer),
        error=measure_errors(top, true_logits, true),
        best_first=mark_hits(top.ids, true.best, 1)[:, 0].astype(np.float64),
        kl=None if chunk.head_logits is None else statistics.compute_divergences(true_logits, chunk.head_logits),
        asked={k: judge_depth(head, chunk.tops[k], true.best, k) for k in depths},
    )


def judge_depth(head: Head, result: PlanResult, true: TrueClasses, k: int) -> AskedRows:
    """The figures of what the plan gave when it was asked for k classes."""
    top = result.topk(head.manifest.normalizer)
    risk = top.complete_risk(head.manifest.classes).astype(np.float64)
    return AskedRows(mark_hits(top.ids, true, k).mean(axis=1), risk)


def count_true_candidates(head: Head, chunk: Chunk, true: TrueClasses, size: int) -> DoubleArray:
    """[b]: how many of the first `size` of `true` are among as many that the head returns when asked for them."""
    top = chunk.tops[size] if size in chunk.tops else head.run(head.plan, chunk.contexts, size, ClassFilter())
    return np.asarray(mark_hits(top.ids, true, size).sum(axis=1), np.float64)


def measure_errors(top: PlanResult, true_logits: FloatArray, true: Ranking) -> DoubleArray:
    """[b, k]: |error| of the log-probabilities returned, nats; 0 beside an id of -1."""
    logprobs = top.logits - top.log_normalizer[:, None]
    true_logprobs = np.take_along_axis(true_logits, np.maximum(top.ids, 0), axis=1) - true.log_normalizer[:, None]
    return np.where(top.ids < 0, 0.0, np.abs(logprobs - true_logprobs)).astype(np.float64)


def score_targets(head: Head, contexts: FloatArray, targets: IdArray) -> DoubleArray:
    """[b]: NLL of `targets` [b] by the log-probabilities that the plan answers for them, as /v1/score does."""
    return -head.score(head.plan, contexts, targets[:, None])[:, 0].astype(np.float64)


def measure_targets(
    ids: Mapping[int, IdArray], logits: FloatArray | None, scored_nll: DoubleArray | None, targets: IdArray
) -> TargetRows:
    """Whether `targets` [b] are among the first k of `ids` [b, m], by k, and their NLL under `logits` [b, V].

    scored_nll: [b], by the log-probabilities answered for them, where that is another figure.
    """
    return TargetRows(
        hits={k: mark_hits(best, targets[:, None], k)[:, 0].astype(np.float64) for k, best in ids.items()},
        nll=None if logits is None else statistics.compute_nll(logits, targets),
        scored_nll=scored_nll,
    )


def concatenate_figures(parts: Sequence[Any]) -> Any:
    """The rows of several parts as one: records field by field, dicts entry by entry, arrays along the first axis."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    if isinstance(first, dict):
        return {key: concatenate_figures([part[key] for part in parts]) for key in first}
    names = [field.name for field in fields(first)]
    return type(first)(**{name: concatenate_figures([getattr(part, name) for part in parts]) for name in names})


def measure_dense_share(head: Head, contexts: FloatArray) -> float:
    """Share of the rows of `contexts` [n, d] that dense answers when each is asked for by itself, as callers do."""
    if head.is_own_reference:  # no dense head answers for it, however many classes a row scores
        return 0.0
    scored = [head.topk(row[None], limit_depth(head)).scored[0] for row in contexts]
    return float(np.mean([count == head.manifest.classes for count in scored]))
