"""Figures over rows of ids and logits: P@k, shares with intervals and promises, divergences. Arrays in, numbers out.

P@k is computed here and nowhere else: `mark_hits` says which true classes were returned, and every precision that the
project prints is a mean of that. A class whose exact score equals that of the k-th may stand in its place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shortlist.bundle.manifest import Quality, Strict
from shortlist.core.results import DoubleArray, FloatArray, IdArray

from .ranking import TrueClasses

PRECISION_DEPTHS = (1, 5, 10)  # the k whose P@k are reported
DEVIATIONS_95 = 1.96  # standard deviations from the mean to either end of a 95 % interval
MIN_SPREAD_ROWS = 30  # with fewer rows their variance is not to be trusted

Bools = npt.NDArray[np.bool_]
Summary = dict[str, float]


class Share(Strict):
    """A share with its 95 % interval, all from 0 to 1."""

    mean: float
    low: float
    high: float


def mark_hits(ids: IdArray, true: IdArray | TrueClasses, k: int) -> Bools:
    """Mark which of the k true classes of each row are among the first k of `ids`.

    ids: [n, m] int64, best first. true: [n, t], best first; -1 is compared like a class. Where their scores are known,
    any class whose exact score equals the k-th one's stands for those of this score, one for one. Returns
    [n, min(k, t)].
    """
    true_ids = true.ids if isinstance(true, TrueClasses) else true
    first, wanted = ids[:, :k], true_ids[:, : min(k, true_ids.shape[1])]
    classes = 2 + max(int(first.max(initial=0)), int(wanted.max(initial=0)))  # with -1
    rows = classes * np.arange(len(ids), dtype=np.int64)[:, None]  # ids of different rows never meet
    hits = np.isin(wanted + rows, first + rows)
    return mark_equal(first, true, hits) if isinstance(true, TrueClasses) else hits


def mark_equal(ids: IdArray, true: TrueClasses, hits: Bools) -> Bools:
    """`hits` [n, k], and so many of the missed classes of the k-th one's score as `ids` [n, m] hold others of it."""
    rank = hits.shape[1] - 1
    last = true.levels[:, : rank + 1] == true.levels[:, rank, None]
    missed = last & ~hits
    if not missed.any():
        return hits
    others = true.count_equal(ids, rank) - (last & hits).sum(axis=1)
    return np.asarray(hits | (missed & (missed.cumsum(axis=1) <= others[:, None])))


def compute_precision(ids: IdArray, true: IdArray | TrueClasses, k: int) -> float:
    """P@k: the share of the k true classes that are among the first k of `ids`, over all rows, as of `mark_hits`."""
    return float(mark_hits(ids, true, k).mean())


def estimate_precision(ids: IdArray, true: IdArray | TrueClasses, k: int) -> Share:
    """P@k with its 95 % interval over rows, as of `estimate_share`."""
    return estimate_share(mark_hits(ids, true, k).mean(axis=1))


def choose_depths(classes: int) -> list[int]:
    """The k of `PRECISION_DEPTHS` for which so many classes of a row suffice."""
    return [k for k in PRECISION_DEPTHS if k <= classes]


def estimate_share(hits: DoubleArray, documents: npt.NDArray[np.integer] | None = None) -> Share:
    """Mean of per-row shares `hits` [n] in 0..1, n >= 1, with its 95 % interval.

    The interval is that of `bound_mean` for as many independent rows as would spread like these do: means of several
    hits a row spread less than single hits and misses, as if there were more rows. One row at the far end is counted
    among them, since rows that miss all are so rare that often none is seen: without it every tenth interval of some
    hundred rows lay over the mean. documents: [n], each row's: rows of one document that are alike count as fewer.
    """
    mean, n = float(hits.mean()), len(hits)
    if n < MIN_SPREAD_ROWS or not 0 < mean < 1:
        return bound_mean(mean, n)
    variance = float(hits.var()) + max(mean, 1 - mean) ** 2 / n
    rows = n / min(1.0, variance / (mean * (1 - mean)))
    return bound_mean(mean, rows if documents is None else min(rows, count_independent_rows(hits, documents)))


def count_independent_rows(hits: DoubleArray, documents: npt.NDArray[np.integer]) -> float:
    """How many independent hits and misses have a mean as sure as that of `hits` [n], between 0 and 1, by `documents`.

    That is by how far documents differ from each other, which few of them tell the less surely: their interval is wider
    by what Student's quantile is over the normal one. Infinite for one document.
    """
    mean, owners = float(hits.mean()), np.unique(documents, return_inverse=True)[1]
    sums = np.bincount(owners, hits - mean)
    freedom = len(sums) - 1
    variance = float(sums @ sums) * (1 + 1 / freedom) / len(hits) ** 2 if freedom else 0.0
    wider = 1 + (DEVIATIONS_95**2 + 1) / (4 * freedom) if freedom else 1.0
    return mean * (1 - mean) / (variance * wider**2) if variance else math.inf


def bound_mean(mean: float, rows: float) -> Share:
    """A share of so many independent hits and misses with its 95 % interval, that of E. B. Wilson (1927)."""
    z = DEVIATIONS_95
    centre, scale = mean + z * z / (2 * rows), 1 + z * z / rows
    half = z * math.sqrt(mean * (1 - mean) / rows + z * z / (4 * rows * rows))
    low, high = (centre - half) / scale, (centre + half) / scale
    return Share(mean=mean, low=max(0.0, min(mean, low)), high=min(1.0, max(mean, high)))


def read_promise(quality: Quality | None, depth: int) -> dict[int, float] | None:
    """P@k of the manifest, by k up to `depth`."""
    if quality is None:
        return None
    shares = (quality.p_at_1, quality.p_at_5, quality.p_at_10)
    return {k: share for k, share in zip(PRECISION_DEPTHS, shares, strict=True) if k <= depth}


def warn_of_promise(
    precision: dict[int, Share] | None,
    promised: dict[int, float] | None,
    promise_rows: int,
    in_force: float | None = None,
) -> str | None:
    """One sentence where even the upper bound on these contexts is too low; None else.

    That is, where it is below the lower bound of what the export measured on `promise_rows` held-out contexts, whose
    error is that of so few, or below the promise in force.
    """
    shares, least = precision or {}, in_force or 0.0
    falls = [
        f"P@{k} is {share.mean:.4f} here, lower than the {promised[k]:.4f} at the export"
        for k, share in shares.items()
        if promised is not None and share.high < bound_mean(promised[k], promise_rows).low
    ]
    breaches = [f"P@{k} is {share.mean:.4f}" for k, share in shares.items() if share.high < least]
    unlike = "these contexts are not like those that the bundle was measured on"
    sentences = [f"{unlike}: {', '.join(falls)}"] if falls else []
    sentences += (
        [f"the head searches for {least:g} and does not keep it here: {', '.join(breaches)}"] if breaches else []
    )
    return "; ".join(sentences) or None


def summarize(values: npt.NDArray[np.floating] | npt.NDArray[np.integer], percentiles: Sequence[int]) -> Summary:
    """`mean` and `pNN` of all `values`, of any shape; the 100th percentile is called `max`."""
    points = np.percentile(values, list(percentiles))
    names = ["max" if percent == 100 else f"p{percent}" for percent in percentiles]
    return {"mean": float(values.mean())} | dict(zip(names, points.tolist(), strict=True))


def compute_log_normalizers(logits: FloatArray) -> DoubleArray:
    """[b, V] -> [b]: log of the sum of exp(logit), in float64; a row at a time, so that memory stays small."""
    peaks = logits.max(axis=1).astype(np.float64)
    sums = [np.exp(row - peak).sum() for row, peak in zip(logits, peaks, strict=True)]
    return np.asarray(peaks + np.log(sums))


def compute_divergences(exact: FloatArray, estimated: FloatArray) -> DoubleArray:
    """[b]: KL(softmax(exact) || softmax(estimated)) in nats, of logits [b, V].

    Infinite where `estimated` gives probability 0 to a class that has some under `exact`. In float64: a good head's
    divergence is below what float32 resolves.
    """
    exact_log_z, estimated_log_z = compute_log_normalizers(exact), compute_log_normalizers(estimated)
    divergences = np.empty(len(exact))
    for row in range(len(exact)):
        log_p = exact[row] - exact_log_z[row]
        p = np.exp(log_p)
        positive = p > 0
        log_q = estimated[row][positive] - estimated_log_z[row]
        divergences[row] = p[positive] @ (log_p[positive] - log_q)
    return divergences


def compute_nll(logits: FloatArray, targets: IdArray) -> DoubleArray:
    """[b]: minus the log-probability, in nats, of `targets` [b] under softmax(logits [b, V])."""
    target_logits = np.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
    return np.asarray(compute_log_normalizers(logits) - target_logits)


def compute_perplexity(nll: DoubleArray) -> float:
    """Exp of the mean of `nll` [n], nats; infinite where that is too large for a number."""
    with np.errstate(over="ignore"):
        return float(np.exp(nll.mean()))


def compute_ratios(estimated: npt.NDArray[np.floating], exact: npt.NDArray[np.floating]) -> DoubleArray:
    """[b]: Z~/Z of normalizers given by their logarithms."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(estimated - exact), np.float64)
