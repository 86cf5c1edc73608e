"""Figures over rows of answers: shares with intervals, divergence, overlap. Arrays in, numbers out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shortlist.bundle.manifest import Strict
from shortlist.core.results import FloatArray, IdArray

Z = 1.96  # standard deviations of a 95 % interval
FEW = 30  # with fewer rows, their spread is not to be trusted
LEAST_SPREAD = 1e-3  # rows that are all alike are still no proof

Doubles = npt.NDArray[np.float64]
Summary = dict[str, float]


class Share(Strict):
    """A share with its 95 % interval, all from 0 to 1."""

    mean: float
    low: float
    high: float


def share(hits: Doubles) -> Share:
    """Mean of per-row shares `hits` [n] in 0..1, n >= 1, with Wilson's interval, for the rows' own spread.

    Hits and misses spread as Wilson (1927) has it; means of several spread less, as if there were more rows.
    """
    mean, n = float(hits.mean()), len(hits)
    spread = 1.0 if n < FEW else float(hits.var()) / max(mean * (1 - mean), 1e-12)
    rows = n / max(spread, LEAST_SPREAD) if 0 < mean < 1 else n
    centre, scale = mean + Z * Z / (2 * rows), 1 + Z * Z / rows
    half = Z * math.sqrt(mean * (1 - mean) / rows + Z * Z / (4 * rows * rows))
    low, high = (centre - half) / scale, (centre + half) / scale
    return Share(mean=mean, low=max(0.0, min(mean, low)), high=min(1.0, max(mean, high)))


def summary(values: npt.NDArray[np.floating] | npt.NDArray[np.integer], percentiles: Sequence[int]) -> Summary:
    """`mean` and `pNN` of all `values`, of any shape; the 100th percentile is `max`."""
    found = np.percentile(values, list(percentiles))
    names = ["max" if percent == 100 else f"p{percent}" for percent in percentiles]
    return {"mean": float(values.mean())} | dict(zip(names, found.tolist(), strict=True))


def log_normalizers(logits: FloatArray) -> Doubles:
    """[b, V] -> [b]: log of the sum of exp(logit), in float64; a row at a time, so that memory stays small."""
    peaks = logits.max(axis=1).astype(np.float64)
    sums = [np.exp(row - peak).sum() for row, peak in zip(logits, peaks, strict=True)]
    return np.asarray(peaks + np.log(sums))


def divergences(exact: FloatArray, own: FloatArray) -> Doubles:
    """[b]: KL(softmax(exact) || softmax(own)) in nats, of logits [b, V]; infinite where own rules out what exact has.

    In float64: a good head's divergence is below what float32 resolves.
    """
    log_z, own_log_z = log_normalizers(exact), log_normalizers(own)
    found = np.empty(len(exact))
    for row in range(len(exact)):
        log_p = exact[row] - log_z[row]
        p = np.exp(log_p)
        seen = p > 0
        log_q = own[row][seen] - own_log_z[row]
        found[row] = p[seen] @ (log_p[seen] - log_q)
    return found


def negative_log_likelihoods(logits: FloatArray, targets: IdArray) -> Doubles:
    """[b]: minus the log-probability, in nats, of `targets` [b] under softmax(logits [b, V])."""
    chosen = np.take_along_axis(logits, targets[:, None], axis=1)[:, 0]
    return np.asarray(log_normalizers(logits) - chosen)


def overlaps(found: IdArray, true: IdArray) -> npt.NDArray[np.int64]:
    """[b]: how many of the ids `true` [b, m] are among `found` [b, m]; -1 is no class."""
    return np.array([np.isin(right, own).sum() for own, right in zip(found, true, strict=True)], np.int64)


def perplexity(nll: Doubles) -> float:
    """Exp of the mean; infinite where that is too large for a number."""
    with np.errstate(over="ignore"):
        return float(np.exp(nll.mean()))


def ratios(own: npt.NDArray[np.floating], exact: Doubles) -> Doubles:
    """[b]: Z~/Z from their logarithms."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(own - exact), np.float64)
