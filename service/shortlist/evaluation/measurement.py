"""Rows of contexts through a head and its dense layer, chunk by chunk, and the figures of each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, FloatArray, IdArray, PlanResult
from shortlist.errors import BadInput
from shortlist.head import Head
from shortlist.plans.common.selection import ranked
from shortlist.plans.registry import Plan

from . import statistics

DEPTHS = (1, 5, 10)
SIZES = (10, 50, 100, 500, 1000)  # SVD-softmax, Tables 1 and 2

PerRow = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True)
class Chunk:
    """Some rows with the plan's answers. own, exact, dense: logits [b, V], None where there are none.

    rows: [b] positions in the user's file. contexts: [b, d]. targets: [b] or None. top: the plan's first ten.
    """

    rows: IdArray
    contexts: FloatArray
    targets: IdArray | None
    own: FloatArray | None
    exact: FloatArray | None
    dense: FloatArray | None
    top: PlanResult


def distinct_rows(contexts: FloatArray, most: int, seed: int) -> IdArray:
    """Positions of at most `most` different rows of `contexts` [n, d], in random order; raises BadInput for none."""
    if most < 1:
        raise BadInput(f"rows is {most}: measure at least 1")
    if not len(contexts):
        raise BadInput("contexts have no rows: give at least 1")
    seen: dict[bytes, int] = {}
    for row in np.random.default_rng(seed).permutation(len(contexts)):
        seen.setdefault(contexts[row].tobytes(), row)
        if len(seen) == most:
            break
    return np.array(list(seen.values()), np.int64)


def checked_targets(head: Head, contexts: FloatArray, targets: npt.ArrayLike) -> IdArray:
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


def truth_of(head: Head) -> Plan | None:
    """The plan whose logits are true; None where the bundle was exported without."""
    return head.exact


def depth_of(head: Head) -> int:
    """How many classes are asked for: ten, where the head answers as many."""
    return min(max(DEPTHS), head.manifest.max_k)


def chunks(head: Head, contexts: FloatArray, targets: IdArray | None, order: IdArray) -> Iterator[Chunk]:
    """The rows in `order`, as many at a time as fit the memory of one plan's scores."""
    truth = truth_of(head)
    step = (truth or head.plan).max_rows()
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        part = contexts[rows]
        exact = None if truth is None else checked_logits(truth.distribution(part), rows)
        dense = exact if truth is head.dense else dense_logits(head, part)
        own = checked_logits(head.plan.distribution(part), rows)
        top = head.run(head.plan, part, depth_of(head), ClassFilter())
        yield Chunk(rows, part, None if targets is None else targets[rows], own, exact, dense, top)


def dense_logits(head: Head, contexts: FloatArray) -> FloatArray | None:
    """Of the dense head that a self-referent one is compared with, where the bundle has it."""
    return None if head.dense is None else head.dense.distribution(contexts)


def checked_logits(logits: FloatArray | None, rows: IdArray) -> FloatArray | None:
    """`logits` [b, V] themselves; raises BadInput that names the row of the file whose scores are no numbers."""
    if logits is not None:
        overflown = np.flatnonzero(~np.isfinite(logits.max(axis=1)))
        if overflown.size:
            raise BadInput(f"contexts row {rows[overflown[0]]} is so large that its scores overflow: scale it down")
    return logits


def per_row(head: Head, chunk: Chunk) -> PerRow:
    """Every figure that the chunk allows, [b] or [b, k] each, under its name."""
    found: PerRow = {"scored": chunk.top.scored.astype(np.float64)}
    if chunk.exact is not None:
        found |= against_truth(head, chunk, chunk.exact)
    if chunk.targets is not None:
        found |= on_targets("head", chunk.top.ids, chunk.own, chunk.targets)
    if chunk.targets is not None and chunk.dense is not None:
        true = best(chunk.dense, chunk.top.ids.shape[1])
        found |= on_targets("dense", true, chunk.dense, chunk.targets)
    return found


def against_truth(head: Head, chunk: Chunk, exact: FloatArray) -> PerRow:
    """Hits, coverage, order, divergence, normaliser and log-probability errors against logits `exact` [b, V]."""
    log_z, ids = statistics.log_normalizers(exact), chunk.top.ids
    sizes = [size for size in SIZES if size <= head.manifest.max_k]
    true = best(exact, max(sizes, default=ids.shape[1]))
    own_logprobs = chunk.top.logits - chunk.top.log_normalizer[:, None]
    errors = np.abs(own_logprobs - (np.take_along_axis(exact, np.maximum(ids, 0), axis=1) - log_z[:, None]))
    found: PerRow = {
        "order": (ids == true[:, : ids.shape[1]]).all(axis=1).astype(np.float64),
        "z": statistics.ratios(chunk.top.log_normalizer, log_z),
        "error": np.where(ids < 0, 0.0, errors).astype(np.float64),
    }
    for k in depths(ids):
        found[f"hits {k}"] = statistics.overlaps(ids[:, :k], true[:, :k]) / k
    for size in sizes:
        own = ids if size == ids.shape[1] else head.run(head.plan, chunk.contexts, size, ClassFilter()).ids
        found[f"covered {size}"] = statistics.overlaps(own, true[:, :size]).astype(np.float64)
    if chunk.own is not None:
        found["kl"] = statistics.divergences(exact, chunk.own)
    return found


def on_targets(whose: str, ids: IdArray, logits: FloatArray | None, targets: IdArray) -> PerRow:
    """Whether `targets` [b] are among the first k of `ids` [b, k], and their NLL under `logits` [b, V]."""
    same = ids == targets[:, None]
    found = {f"{whose} target {k}": same[:, :k].any(axis=1).astype(np.float64) for k in depths(ids)}
    if logits is not None:
        found[f"{whose} nll"] = statistics.negative_log_likelihoods(logits, targets)
    return found


def depths(ids: IdArray) -> list[int]:
    """The k of P@k that ids [b, m] allow."""
    return [k for k in DEPTHS if k <= ids.shape[1]]


def best(logits: FloatArray, k: int) -> IdArray:
    """[b, V] -> [b, k]: the k best, best first; equal logits by lower id, -1 for those of probability 0."""
    ids = np.stack([ranked(row, k) for row in logits])
    return np.where(np.isneginf(np.take_along_axis(logits, ids, axis=1)), NO_CLASS, ids)


def answered_dense(head: Head, contexts: FloatArray) -> float:
    """Share of the rows of `contexts` [n, d] that dense answers when each is asked for by itself, as callers do."""
    if head.is_own_reference:  # no dense head answers for it, however many classes a row scores
        return 0.0
    scored = [head.topk(row[None], depth_of(head)).scored[0] for row in contexts]
    return float(np.mean([count == head.manifest.classes for count in scored]))
