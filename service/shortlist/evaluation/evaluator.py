"""A bundle held against its reference on contexts of the user's: `evaluate(head, contexts, targets)`.

The reference is its dense head, or the head's own whole distribution; figures on targets stand beside dense in both.

The figures are those of the papers. P@k, coverage and Z~/Z are the plan's alone, whatever the number of rows: a head
must not look good because dense answered for it. Coverage asks for each size, and a plan may widen for a large one.
KL and NLL are of the plan's full distribution, which takes previews for the classes that were not scored, as the
papers' do; Z~/Z and the log-probability errors are of what the head returns for k = 10.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from shortlist.bundle.manifest import Quality, Strict
from shortlist.head import Head

from . import statistics
from .measurement import (
    DEPTHS,
    SIZES,
    PerRow,
    answered_dense,
    checked_targets,
    chunks,
    depth_of,
    distinct_rows,
    per_row,
)
from .statistics import Doubles, Share, Summary

ROWS = 10_000  # measured by default
ALONE = 1000  # rows asked one by one

Progress = Callable[[int, int], None]


class Targets(Strict):
    """Figures on the gold classes. accuracy: by k, how often the target is among the k best. nll: mean, nats."""

    accuracy: dict[int, Share]
    nll: float | None
    perplexity: float | None


class Evaluation(Strict):
    """What `evaluate` found. A figure that cannot be had is None, and `missing` says why; JSON writes infinity as null.

    rows: distinct contexts measured. precision: P@k by k. promised: the manifest's P@k by k. coverage: by m, how
    many of the true top m are in the head's top m, mean. order_kept: share of rows whose first ten came in the true
    order. kl: KL(dense || head), nats. z_ratio: Z~/Z. logprob_error: |error| of the ten returned log-probabilities,
    nats.
    head_targets, dense_targets: on the gold classes. candidates: classes scored for a row by the plan.
    answered_dense: share of rows, asked one by one, that dense answered. cost_macs, cost_bytes: per query relative to
    dense, projections and routers included. warning: a sentence where the bundle's promise does not hold here.
    """

    name: str
    version: int
    method: str
    rows: int
    seed: int
    missing: list[str]
    precision: dict[int, Share] | None
    promised: dict[int, float] | None
    coverage: dict[int, float] | None
    order_kept: float | None
    kl: Summary | None
    z_ratio: Summary | None
    logprob_error: Summary | None
    head_targets: Targets | None
    dense_targets: Targets | None
    candidates: Summary
    answered_dense: float
    cost_macs: float | None
    cost_bytes: float | None
    warning: str | None


def evaluate(
    head: Head,
    contexts: npt.ArrayLike,
    targets: npt.ArrayLike | None = None,
    *,
    rows: int = ROWS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Measure `head` on at most `rows` distinct rows of `contexts`, in random order.

    contexts: [n, d] float32. targets: [n] whole numbers, the gold class of each row. progress: gets rows done and all.
    Truth is the bundle's reference; without it nothing is reported that would need it. Raises BadInput.
    """
    known = head.check_contexts(contexts)
    gold = None if targets is None else checked_targets(head, known, targets)
    order = distinct_rows(known, rows, seed)
    parts: list[PerRow] = []
    for chunk in chunks(head, known, gold, order):
        parts.append(per_row(head, chunk))
        if progress is not None:
            progress(sum(len(part["scored"]) for part in parts), len(order))
    alone = answered_dense(head, known[order[:ALONE]])
    return summarised(head, {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, seed, alone)


def summarised(head: Head, found: PerRow, seed: int, alone: float) -> Evaluation:
    """All rows' figures as one record."""
    manifest, quality = head.manifest, head.manifest.quality
    precision = {k: statistics.share(found[f"hits {k}"]) for k in DEPTHS if f"hits {k}" in found} or None
    promised = promise_of(quality, depth_of(head))
    return Evaluation(
        name=manifest.name,
        version=manifest.version,
        method=manifest.method,
        rows=len(found["scored"]),
        seed=seed,
        missing=missing(head, found),
        precision=precision,
        promised=promised,
        coverage={size: mean for size in SIZES if (mean := mean_of(found, f"covered {size}")) is not None} or None,
        order_kept=mean_of(found, "order"),
        kl=summary_of(found, "kl", 99),
        z_ratio=summary_of(found, "z", 1, 99),
        logprob_error=summary_of(found, "error", 50, 90, 99, 100),
        head_targets=targets_of(found, "head"),
        dense_targets=targets_of(found, "dense"),
        candidates=statistics.summary(found["scored"], (99,)),
        answered_dense=alone,
        cost_macs=None if quality is None else quality.cost_macs,
        cost_bytes=None if quality is None else quality.cost_bytes,
        warning=warning_of(precision, promised),
    )


def mean_of(found: PerRow, name: str) -> float | None:
    """Mean of a figure, where it was measured."""
    return float(found[name].mean()) if name in found else None


def summary_of(found: PerRow, name: str, *percentiles: int) -> Summary | None:
    """Mean and percentiles of a figure, where it was measured."""
    return statistics.summary(found[name], percentiles) if name in found else None


def targets_of(found: PerRow, whose: str) -> Targets | None:
    """Figures on the targets, where there are any."""
    accuracy = {k: statistics.share(found[name]) for k in DEPTHS if (name := f"{whose} target {k}") in found}
    nll: Doubles | None = found.get(f"{whose} nll")
    if not accuracy:
        return None
    if nll is None:
        return Targets(accuracy=accuracy, nll=None, perplexity=None)
    return Targets(accuracy=accuracy, nll=float(nll.mean()), perplexity=statistics.perplexity(nll))


def promise_of(quality: Quality | None, depth: int) -> dict[int, float] | None:
    """P@k of the manifest, by k."""
    if quality is None:
        return None
    return {k: p for k, p in zip(DEPTHS, (quality.p_at_1, quality.p_at_5, quality.p_at_10), strict=True) if k <= depth}


def missing(head: Head, found: PerRow) -> list[str]:
    """A sentence for every kind of figure that could not be had."""
    sentences = []
    name = head.manifest.name
    if head.exact is None:
        sentences.append(f"{name} was exported with --no-dense: without its dense head there is no truth, so no P@k")
    if head.plan.distribution(np.empty((0, head.manifest.dim), np.float32)) is None:
        sentences.append(f"plan {head.manifest.plan} gives no logits for most classes, so no KL and no NLL of the head")
    if "head target 1" not in found:
        sentences.append("there are no targets, so no target accuracy, NLL and perplexity")
    elif head.is_own_reference and head.dense is None:
        sentences.append(
            f"{name} was exported with --no-dense, so no dense head's figures on the targets beside its own"
        )
    return sentences


def warning_of(precision: dict[int, Share] | None, promised: dict[int, float] | None) -> str | None:
    """One sentence where even the upper bound on these contexts is below the bundle's promise."""
    if precision is None or promised is None:
        return None
    broken = [
        f"P@{k} is {here.mean:.4f} here, {promised[k]:.4f} promised"
        for k, here in precision.items()
        if here.high < promised[k]
    ]
    return f"these contexts are not like those that the bundle was measured on: {', '.join(broken)}" if broken else None
