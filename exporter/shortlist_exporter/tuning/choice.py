"""From trials to one head: chosen on the tune split, held to its promise on the test split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..methods.base import quiet
from .bench import Bench
from .fits import Fit
from .promises import keeps, margin, may_keep
from .record import Trial
from .search import RUNGS, Head, Search
from .space import DENSE, Build

WHOLE = len(RUNGS) - 1


@dataclass
class Choice:
    """Looks at the test split, in order of time.

    Choosing among heads by the tune split costs nothing on the test split, but each further look does: of heads that
    do not keep the promise, one in forty passes a look by luck.
    """

    search: Search
    looks: int = 0

    @property
    def bench(self) -> Bench:
        """Where heads are measured."""
        return self.search.bench

    def choose(self) -> tuple[Head, Fit] | None:
        """The fastest head that keeps the promise on tune and then on test; after a failure only more precise ones."""
        failed = -float("inf")
        for head in self.candidates():
            trial = self.thorough(head)
            if margin(self.bench.promise, trial.tune) <= failed or not self.kept_on_tune(trial):
                continue
            fit = self.tested(head)
            if fit is not None and self.passed(head):
                return head, fit
            if fit is not None:
                failed = margin(self.bench.promise, trial.tune)
        return None

    def candidates(self) -> Iterator[Head]:
        """Heads that may keep the promise: those of the highest rung first, in order of time."""
        trials = self.search.trials
        open_ = [head for head in trials if may_keep(self.bench.promise, trials[head].tune, trials[head].bytes)]
        yield from sorted(open_, key=lambda head: (-trials[head].rung, 1 / trials[head].tune.speedup))

    def thorough(self, head: Head) -> Trial:
        """The trial on all rows of the tune split, whatever rung the search stopped at."""
        trial = self.search.trials[head]
        rows = RUNGS[WHOLE].rows
        tune = self.bench.measured(self.fit_of(head), trial.setting, "tune", rows)
        return self.note(head, tune=tune)

    def kept_on_tune(self, trial: Trial) -> bool:
        """Whether the head as it was fitted keeps the promise on tune, its log-probabilities left out."""
        return keeps(self.bench.promise, trial.tune, trial.bytes, calibrated=False)

    def tested(self, head: Head) -> Fit | None:
        """Calibrate the head for its setting and look at test; None where its log-probabilities fail on tune."""
        trial = self.search.trials[head]
        self.search.clock.tell(f"{trial.label}: calibrated and held against the test split")
        fit = self.bench.fits.adapted(self.fit_of(head), trial.setting, quiet)
        costs = {"bytes": fit.bytes, "cost_macs": fit.cost.macs, "cost_bytes": fit.cost.bytes}
        if self.bench.promise.logprob_error is not None:
            trial = self.note(head, tune=self.bench.measured(fit, {}, "tune", RUNGS[WHOLE].rows), **costs)
            if not keeps(self.bench.promise, trial.tune, trial.bytes):
                return None
        self.looks += 1
        self.note(head, test=self.bench.measured(fit, {}, "test", len(self.bench.rows["test"])), **costs)
        return fit

    def passed(self, head: Head) -> bool:
        """Whether the promise holds on test."""
        trial = self.search.trials[head]
        return trial.test is not None and keeps(self.bench.promise, trial.test, trial.bytes)

    def best(self) -> Head | None:
        """The most precise head that was tried and is small enough."""
        trials = self.search.trials
        heads = [head for head in trials if head[0].method != DENSE]
        return max(heads, key=lambda head: margin(self.bench.promise, trials[head].tune), default=None)

    def fit_of(self, head: Head) -> Fit:
        """The fit of a trial, from the cache."""
        return self.bench.fits.at(head[0], self.search.trials[head].fit_rows, quiet)

    def note(self, head: Head, **found: object) -> Trial:
        """Add figures to a trial."""
        trial = self.search.trials[head].model_copy(update=found)
        self.search.trials[head] = trial
        return trial


def dense_head() -> Head:
    """The dense layer itself."""
    return Build(DENSE), ()
