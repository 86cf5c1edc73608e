"""From trials to one head: chosen on the tune split, held to its promise on the test split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shortlist_exporter.core.types import quiet
from shortlist_exporter.records.tuning import Trial

from .bench import Bench
from .fits import Fit
from .promises import fits_memory, keeps_promise, measure_margin
from .search import RUNGS, Head, Search
from .space import DENSE_METHOD, Build

LAST_RUNG = len(RUNGS) - 1
FINALIST_HEADS = 4  # heads that are timed against each other


@dataclass
class Choice:
    """Chooses a head: each look at the test split is at the fastest head that was not looked at yet.

    Choosing among heads by the tune split costs nothing on the test split, but each further look does: of heads that
    do not keep the promise, one in forty passes a look by luck.
    """

    search: Search
    looks: int = 0

    @property
    def bench(self) -> Bench:
        return self.search.bench

    def choose(self) -> tuple[Head, Fit] | None:
        """The fastest head that keeps the promise on tune and then on test; after a failure only more precise ones."""
        failed_margin = -float("inf")
        for head in (head for finalists in self.list_finalists() for head in finalists):
            head_margin = measure_margin(self.bench.promise, self.search.trials[head].tune)
            if head_margin <= failed_margin:
                continue
            fit = self.test(head)
            if fit is not None and self.passes(head):
                return head, fit
            if fit is not None:
                failed_margin = head_margin
        return None

    def list_finalists(self) -> Iterator[list[Head]]:
        """Heads that keep the promise on tune, a few of one rung at a time, each few in the order of one timed run."""
        limit = 1 if self.search.interrupted else FINALIST_HEADS  # who stops a search does not want to wait
        finalists: list[Head] = []
        for head in self.list_candidates():
            if finalists and self.rung(head) != self.rung(finalists[0]):
                yield self.race(finalists)
                finalists = []
            self.search.clock.report_stage("candidates on the whole tune split")
            if self.keeps_on_tune(self.measure_whole(head)):
                finalists.append(head)
            if len(finalists) == limit:
                yield self.race(finalists)
                finalists = []
        if finalists:
            yield self.race(finalists)

    def rung(self, head: Head) -> int:
        """The last rung that a head reached."""
        return self.search.trials[head].rung

    def race(self, heads: list[Head]) -> list[Head]:
        """`heads` by their time in one run with dense: times of different minutes are not to be compared."""
        self.search.clock.report_stage("times of the finalists, in one run")
        trials = self.search.trials
        times_of_heads = self.bench.race([(self.read_fit(head), trials[head].setting) for head in heads])
        for head, times in zip(heads, times_of_heads, strict=True):
            self.add_figures(head, tune=trials[head].tune.model_copy(update=times))
        return sorted(heads, key=lambda head: trials[head].tune.us)

    def list_candidates(self) -> Iterator[Head]:
        """Heads that reach the targets on what was measured: those of the highest rung first, in order of time."""
        trials, promise = self.search.trials, self.bench.promise
        reaching = [head for head in trials if measure_margin(promise, trials[head].tune) >= 0]
        fitting = [head for head in reaching if fits_memory(promise, trials[head].bytes)]
        yield from sorted(fitting, key=lambda head: (-trials[head].rung, 1 / trials[head].tune.speedup))

    def measure_whole(self, head: Head) -> Trial:
        """The trial on all rows of the tune split, whatever rung the search stopped at."""
        trial = self.search.trials[head]
        rows = RUNGS[LAST_RUNG].rows
        tune = self.bench.measure(self.read_fit(head), trial.setting, "tune", rows)
        return self.add_figures(head, tune=tune)

    def keeps_on_tune(self, trial: Trial) -> bool:
        """Whether the head as it was fitted keeps the promise on tune, its log-probabilities left out."""
        return keeps_promise(self.bench.promise, trial.tune, trial.bytes, calibrated=False)

    def test(self, head: Head) -> Fit | None:
        """Calibrate the head for its setting and look at test; None where its log-probabilities fail on tune."""
        trial = self.search.trials[head]
        self.search.clock.report_stage("calibration and a look at the test split")
        fit = self.bench.fits.adapt(self.read_fit(head), trial.setting, quiet)
        costs = {"bytes": fit.bytes, "cost_macs": fit.cost.macs, "cost_bytes": fit.cost.bytes}
        if self.bench.promise.logprob_error is not None:
            trial = self.add_figures(head, tune=self.bench.measure(fit, {}, "tune", RUNGS[LAST_RUNG].rows), **costs)
            if not keeps_promise(self.bench.promise, trial.tune, trial.bytes):
                return None
        self.looks += 1
        self.add_figures(head, test=self.bench.measure(fit, {}, "test", len(self.bench.rows["test"])), **costs)
        return fit

    def passes(self, head: Head) -> bool:
        """Whether the promise holds on test."""
        trial = self.search.trials[head]
        return trial.test is not None and keeps_promise(self.bench.promise, trial.test, trial.bytes)

    def find_most_precise(self) -> Head | None:
        """The most precise head that was tried, by test where any was looked at there."""
        trials = {head: trial for head, trial in self.search.trials.items() if head[0].method != DENSE_METHOD}
        test_figures = {head: trial.test for head, trial in trials.items() if trial.test is not None}
        figures = test_figures or {head: trial.tune for head, trial in trials.items()}
        return max(figures, key=lambda head: measure_margin(self.bench.promise, figures[head]), default=None)

    def read_fit(self, head: Head) -> Fit:
        """The fit of a trial, from the cache."""
        return self.bench.fits.fit(head[0], self.search.trials[head].fit_rows, quiet)

    def add_figures(self, head: Head, **figures: object) -> Trial:
        """Replace figures of the head's trial, and return the new trial."""
        trial = self.search.trials[head].model_copy(update=figures)
        self.search.trials[head] = trial
        return trial


def make_dense_head() -> Head:
    """The head that is the dense layer itself."""
    return Build(DENSE_METHOD), ()
