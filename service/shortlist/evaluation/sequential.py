"""Shares that are observed row by row, without end: an interval that holds at every row, and a detector of a fall.

Both take shares of hits from 0 to 1, not hits and misses alone, and ask nothing of how they are distributed but their
mean: where X in [0, 1] has the mean p at most, 1 + s (X - p) has the mean 1 at most for any stake s in [0, 1 / p], so
that products of such factors are evidence against p (I. Waudby-Smith, A. Ramdas, Estimating means of bounded random
variables by betting, JRSS B 86, 2024). Of misses and hits alone, they are likelihood ratios.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from shortlist.core.results import DoubleArray

from .statistics import Share

ODDS_FACTORS = (1.5, 2.0, 3.0, 5.0, 10.0)  # by how much the odds of a miss may have grown: a bet is laid on each
FALSE_ALARM_ROWS = 1e6  # rows between two false alarms, in the mean, at least
HOLD_ROWS = 10_000  # without another alarm, after which an alarm is over
WINDOW_ROWS = 20_000  # the most that a figure is of; half as many at least, once there are so many
MIN_MISSES = 1e-4  # the smallest share of misses that can be promised: one miss must not be proof
INTERVAL_ERROR = 0.05  # probability that an interval ever fails to cover the mean, at most
MIXTURE = (0.5, 0.5)  # of the interval: a beta distribution over the share
BISECTIONS = 50


def choose_stakes(misses: float) -> DoubleArray:
    """[j]: the stake of each bet against a mean share of misses in (0, 1), one for each of `ODDS_FACTORS`.

    A bet wins most where the odds of a miss are so many times those of `misses`.
    """
    odds = np.array(ODDS_FACTORS) * misses / (1 - misses)
    return np.asarray((odds / (1 + odds) / misses - 1) / (1 - misses))


def add_evidence(evidence: DoubleArray, row_misses: DoubleArray, misses: float, stakes: DoubleArray) -> DoubleArray:
    """The evidence [..., j] of bets on a change at any row so far, after one more row.

    row_misses: [...], the share that the row missed. A. N. Shiryaev (1963) and S. W. Roberts (1966) sum over the rows
    at which the change may have come; with such factors the sum is an e-detector, and the mean over bets is one, too
    (J. Shin, A. Ramdas, A. Rinaldo, E-detectors: a nonparametric framework for sequential change detection, NEJSDS
    2024). Less the number of rows, its mean does not grow: a threshold of n is passed after n rows in the mean, or
    later, as long as the mean share of misses is `misses` at most.
    """
    return np.asarray((evidence + 1) * (1 + stakes * (row_misses[..., None] - misses)))


@dataclass
class FallDetector:
    """Raises an alarm where the mean share of hits falls under a promise, then starts anew.

    promise: from 0 to 1. false_alarm_rows: between false alarms, in the mean, at least. The alarm stands until
    `HOLD_ROWS` rows have come without another. alarms: so far. quiet_rows: since the last one.
    """

    promise: float
    false_alarm_rows: float = FALSE_ALARM_ROWS
    alarms: int = 0
    quiet_rows: int = 0
    evidence: DoubleArray = field(init=False)
    stakes: DoubleArray = field(init=False)

    def __post_init__(self) -> None:
        self.misses = min(max(1 - self.promise, MIN_MISSES), 1 - MIN_MISSES)
        self.stakes = choose_stakes(self.misses)
        self.restart()

    def restart(self) -> None:
        """Forget the evidence so far; an alarm that stands stays."""
        self.evidence = np.zeros(len(self.stakes))

    @property
    def stands(self) -> bool:
        """Whether there was an alarm that is not over yet."""
        return self.alarms > 0 and self.quiet_rows < HOLD_ROWS

    @property
    def level(self) -> float:
        """The evidence so far, from 0 to 1, the alarm; on a logarithmic scale."""
        return math.log1p(float(self.evidence.mean())) / math.log1p(self.false_alarm_rows)

    def observe(self, hits: float) -> bool:
        """Take into account the share of hits of one more row; returns whether that raises an alarm."""
        self.quiet_rows += 1
        self.evidence = add_evidence(self.evidence, np.asarray(1 - hits), self.misses, self.stakes)
        if self.evidence.mean() < self.false_alarm_rows:
            return False
        self.alarms, self.quiet_rows = self.alarms + 1, 0
        self.restart()
        return True


def bound_share(hits: float, rows: int) -> Share:
    """The mean of `rows` shares that add up to `hits`, and an interval that covers the true mean at every row.

    The probability that it ever fails, however often it is looked at, is `INTERVAL_ERROR` at most. It is that of
    H. Robbins (Statistical methods related to the law of the iterated logarithm, 1970): all p against which a beta
    mixture of products q^x (1 - q)^(1 - x) / (p^x (1 - p)^(1 - x)) has grown to less than 1 / INTERVAL_ERROR. Shares
    between 0 and 1 only lessen that growth, as the function of x is convex (S. R. Howard and others, Time-uniform,
    nonparametric, nonasymptotic confidence sequences, Annals of Statistics 49, 2021).
    """
    if not rows:
        return Share(mean=1.0, low=0.0, high=1.0)
    a, b = MIXTURE
    mixture = log_beta(a + hits, b + rows - hits) - log_beta(a, b)

    def is_covered(p: float) -> bool:
        return mixture - log_power(p, hits) - log_power(1 - p, rows - hits) < -math.log(INTERVAL_ERROR)

    mean = min(1.0, hits / rows)
    return Share(mean=mean, low=find_edge(is_covered, mean, 0.0), high=find_edge(is_covered, mean, 1.0))


def log_beta(a: float, b: float) -> float:
    """The logarithm of the beta function."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def log_power(base: float, exponent: float) -> float:
    """The logarithm of a power of a number from 0 to 1; 0^0 is 1."""
    if exponent <= 0:
        return 0.0
    return exponent * math.log(base) if base > 0 else -math.inf


def find_edge(is_covered: Callable[[float], bool], inside: float, outside: float) -> float:
    """How far an interval around `inside` reaches towards `outside`, by bisection."""
    if is_covered(outside):
        return outside
    for _ in range(BISECTIONS):
        middle = (inside + outside) / 2
        inside, outside = (middle, outside) if is_covered(middle) else (inside, middle)
    return outside


class ShareWindow:
    """The mean share over the last rows: of `WINDOW_ROWS` at most, and half of them at least once so many have come.

    The window starts at numbers of rows that are fixed beforehand, so that the interval holds at each row from there.
    """

    def __init__(self) -> None:
        self.halves: list[tuple[int, float]] = [(0, 0.0)]  # rows and the sum of their shares, older first

    def add(self, hits: float) -> None:
        """Take into account one more row's share of hits."""
        rows, total = self.halves[-1]
        self.halves[-1] = rows + 1, total + hits
        if rows + 1 == WINDOW_ROWS // 2:
            self.halves = [self.halves[-1], (0, 0.0)]

    @property
    def rows(self) -> int:
        """How many rows the figure is of."""
        return sum(rows for rows, _ in self.halves)

    def estimate(self) -> Share:
        """The mean over the window with its interval, as of `bound_share`."""
        return bound_share(sum(total for _, total in self.halves), self.rows)
