"""From trials to one head: chosen on the tune split, held to its promise on the test split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shortlist_exporter.core.types import quiet
from shortlist_exporter.records.tuning import Trial

from .bench import Bench
from .fits import Fit
from .promises import fits_memory, keeps, measure_margin
from .search import RUNGS, Head, Search
from .space import DENSE, Build

WHOLE = len(RUNGS) - 1
FINALISTS = 4  # heads that are timed against each other


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
        for head in (head for finalists in self.rounds() for head in finalists):
            over = measure_margin(self.bench.promise, self.search.trials[head].tune)
            if over <= failed:
                continue
            fit = self.tested(head)
            if fit is not None and self.passed(head):
                return head, fit
            if fit is not None:
                failed = over
        return None

    def rounds(self) -> Iterator[list[Head]]:
        """Heads that keep the promise on tune, a few of one rung at a time, each few in the order of one timed run."""
        most = 1 if self.search.interrupted else FINALISTS  # who stops a search does not want to wait
        few: list[Head] = []
        for head in self.candidates():
            if few and self.rung(head) != self.rung(few[0]):
                yield self.raced(few)
                few = []
            self.search.clock.tell("candidates on the whole tune split")
            if self.kept_on_tune(self.thorough(head)):
                few.append(head)
            if len(few) == most:
                yield self.raced(few)
                few = []
        if few:
            yield self.raced(few)

    def rung(self, head: Head) -> int:
        """The last rung that a head reached."""
        return self.search.trials[head].rung

    def raced(self, heads: list[Head]) -> list[Head]:
        """`heads` by their time in one interleaved run: times of different minutes are not to be compared."""
        if len(heads) == 1:
            return heads
        self.search.clock.tell(f"{len(heads)} finalists in one run")
        trials = self.search.trials
        found = self.bench.raced([(self.fit_of(head), trials[head].setting) for head in heads])
        for head, times in zip(heads, found, strict=True):
            self.note(head, tune=trials[head].tune.model_copy(update=times))
        return sorted(heads, key=lambda head: trials[head].tune.us)

    def candidates(self) -> Iterator[Head]:
        """Heads that reach the targets on what was measured: those of the highest rung first, in order of time."""
        trials, promise = self.search.trials, self.bench.promise
        reaching = [head for head in trials if measure_margin(promise, trials[head].tune) >= 0]
        fitting = [head for head in reaching if fits_memory(promise, trials[head].bytes)]
        yield from sorted(fitting, key=lambda head: (-trials[head].rung, 1 / trials[head].tune.speedup))

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
        self.search.clock.tell("calibration and a look at the test split")
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
        """The most precise head that was tried, by test where any was looked at there."""
        trials = {head: trial for head, trial in self.search.trials.items() if head[0].method != DENSE}
        tested = {head: trial.test for head, trial in trials.items() if trial.test is not None}
        found = tested or {head: trial.tune for head, trial in trials.items()}
        return max(found, key=lambda head: measure_margin(self.bench.promise, found[head]), default=None)

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
