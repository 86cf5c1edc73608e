"""Successive halving: every head on few contexts and rows, then the better half on more of both.

The rungs hold for what is fitted. Of the swept option only values that the rung before did not rule out are
measured, from the cheapest on, until one surely keeps the promise, and one more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from shortlist.errors import ShortlistError

from shortlist_exporter.inputs.sources import Dense
from shortlist_exporter.records.tuning import Omission, Trial

from .bench import Bench
from .clock import Clock, OutOfTime
from .fits import Fit
from .pace import Pace
from .promises import keeps_promise, may_keep_promise, measure_margin
from .space import Build, Setting, list_settings

MIN_FIT_CONTEXTS = 20_000  # contexts to fit with, at least, where there are as many
MIN_SURVIVORS = 3  # heads that go on from a rung, at least
MAX_RUNG_SLOWDOWN = 2.0  # a head that takes so many times as long as a rung's best is not fitted on all contexts
MIN_TRIAL_SPEEDUP = 0.5  # a speed-up under which dearer settings are not tried
EASY_MARGIN = 0.5  # share of the allowed misses that a head leaves unused
KEEPING_SETTINGS = 2  # settings that keep the promise on tune, the second one in case that the first fails on test


@dataclass(frozen=True)
class Rung:
    """fit: share of the fit split. rows: of the tune split. slack: times as many misses as promised are let pass."""

    fit: float
    rows: int
    slack: float


# The slack is for methods that learn from contexts: with fewer of them they miss more.
RUNGS = (Rung(1 / 9, 512, 2.0), Rung(1 / 3, 2048, 1.5), Rung(1.0, 8192, 1.0))

BY_HAND = "stopped by hand"  # why a search ended that did not end by itself

Head = tuple[Build, tuple[tuple[str, int], ...]]


@dataclass
class Search:
    """What was tried so far: of each head the trial at the last rung that it reached. minutes go by `clock`."""

    bench: Bench
    layer: Dense
    clock: Clock
    trials: dict[Head, Trial] = field(default_factory=dict)
    left: list[Omission] = field(default_factory=list)
    interrupted: bool = False

    def __post_init__(self) -> None:
        """Begin with no head timed."""
        self.pace = Pace([self.count_fit_rows(number) for number in range(len(RUNGS))])

    def run(self, builds: Sequence[Build]) -> None:
        """Climb the rungs; Ctrl-C and the end of the budget keep what was measured."""
        try:
            for number in range(len(RUNGS)):
                self.climb(number, builds)
                builds = self.choose_survivors(number, builds)
        except (OutOfTime, KeyboardInterrupt) as stop:
            self.interrupted = True
            why = BY_HAND if isinstance(stop, KeyboardInterrupt) else "the time budget was spent"
            self.left.append(Omission(what="the search", why=why))

    def climb(self, number: int, builds: Sequence[Build]) -> None:
        """One rung: fit and sweep each build."""
        rows = self.count_fit_rows(number)
        for position, build in enumerate(builds):
            self.clock.plan_seconds = self.plan_seconds(number, builds[position:])
            label = f"rung {number + 1} of {len(RUNGS)}, {build.method} {position + 1} of {len(builds)}"
            self.clock.check(label)
            needed = self.expect(build, number)
            if needed + self.reserve(build) > self.clock.left:
                self.interrupted = True
                self.skip(build, self.explain_skip(needed, rows))
                continue
            before = self.clock.elapsed
            try:
                self.sweep(number, self.bench.fits.fit(build, rows, self.clock.watch(label)), label)
            except (ShortlistError, RuntimeError) as error:
                self.skip(build, str(error))
            self.pace.note(build, number, self.clock.elapsed - before)

    def skip(self, build: Build, why: str) -> None:
        """Note what was not tried."""
        self.left.append(Omission(what=build.label, why=why))

    def sweep(self, number: int, fit: Fit, label: str) -> None:
        """Measure a fit's settings, cheap ones first."""
        keeping_settings = 0
        for setting in self.choose_settings(fit.build):
            self.clock.check(label)
            trial = self.measure_trial(fit, setting, number)
            keeping_settings += self.suffices(trial)
            if keeping_settings == KEEPING_SETTINGS or trial.tune.speedup < MIN_TRIAL_SPEEDUP:
                break

    def suffices(self, trial: Trial) -> bool:
        """Whether dearer settings are of no use: the promise is kept, or, before the last rung, kept with ease."""
        early = trial.rung < len(RUNGS) - 1 and measure_margin(self.bench.promise, trial.tune) > EASY_MARGIN
        return early or keeps_promise(self.bench.promise, trial.tune, trial.bytes, calibrated=False)

    def measure_trial(self, fit: Fit, setting: Setting, number: int) -> Trial:
        """Measure one head on the rung's rows of the tune split, and note it."""
        tune = self.bench.measure(fit, setting, "tune", RUNGS[number].rows)
        cost = self.bench.estimate_cost(fit, setting, tune)
        trial = Trial(
            method=fit.build.method,
            options=dict(fit.build.options),
            setting=setting,
            rung=number,
            fit_rows=fit.rows,
            fit_seconds=fit.seconds,
            bytes=fit.bytes,
            cost_macs=cost.macs,
            cost_bytes=cost.bytes,
            tune=tune,
        )
        self.trials[fit.build, tuple(setting.items())] = trial
        return trial

    def choose_settings(self, build: Build) -> list[Setting]:
        """Every other one at first; then all from the first on that the last rung did not rule out."""
        every, trials = list_settings(build.method, self.layer), dict(self.list_trials(build))
        if not trials:
            return every[::2]
        ruled_out = [
            i for i, s in enumerate(every) if tuple(s.items()) in trials and not self.may_keep(trials[tuple(s.items())])
        ]
        first = max(ruled_out, default=-1) + 1
        return every[min(first, len(every) - 1) :]

    def may_keep(self, trial: Trial) -> bool:
        """Whether a trial's rung leaves the promise possible."""
        return may_keep_promise(self.bench.promise, trial.tune, trial.bytes, RUNGS[trial.rung].slack)

    def list_trials(self, build: Build) -> list[tuple[tuple[tuple[str, int], ...], Trial]]:
        """Settings and trials of one build."""
        return [(setting, trial) for (of, setting), trial in self.trials.items() if of == build]

    def choose_survivors(self, number: int, builds: Sequence[Build]) -> list[Build]:
        """The better half, best first; after the first rung at least one of each method."""
        builds_at_rung = [
            build for build in builds if any(trial.rung == number for _, trial in self.list_trials(build))
        ]
        ranking = sorted(builds_at_rung, key=self.rank)
        survivors = ranking[: max(MIN_SURVIVORS, (len(ranking) + 1) // 2)]
        if number == 0:
            best = {build.method: build for build in reversed(ranking)}
            return [*survivors, *(build for build in best.values() if build not in survivors)]
        return [build for build in survivors if self.is_worth_fitting(build, survivors[0])]

    def is_worth_fitting(self, build: Build, best: Build) -> bool:
        """Whether a build is worth a fit on all contexts beside the best one."""
        (out, time), (all_out, least) = self.rank(build), self.rank(best)
        return build == best or (out == all_out and (out or time <= MAX_RUNG_SLOWDOWN * least))

    def rank(self, build: Build) -> tuple[bool, float]:
        """Builds that may keep the promise, by their fastest setting that may; then the others, by precision."""
        trials = [trial for _, trial in self.list_trials(build)]
        times = [1 / trial.tune.speedup for trial in trials if self.may_keep(trial)]
        if times:
            return False, min(times)
        return True, -max(measure_margin(self.bench.promise, trial.tune) for trial in trials)

    def count_fit_rows(self, number: int) -> int:
        """Contexts to fit with at a rung."""
        whole = len(self.bench.fits.contexts.contexts)
        return min(whole, max(MIN_FIT_CONTEXTS, round(whole * RUNGS[number].fit)))

    def expect(self, build: Build, number: int) -> float:
        """Seconds that a rung may take for a build; 0 where nobody knows, and where the cache has the fit."""
        entry = self.bench.fits.find(build, self.count_fit_rows(number))
        return 0.0 if entry is not None else self.pace.expect(build, number)

    def reserve(self, build: Build) -> float:
        """Seconds kept for the best head that may keep the promise and still has the time for all rungs, but `build`.

        Without them a slow machine spends its time on many heads with few contexts, and none is fitted on all.
        """
        others = [other for other in self.pace.took if other != build and self.list_trials(other)]
        better = [other for other in others if not self.list_trials(build) or self.rank(other) < self.rank(build)]
        hopeful = [other for other in sorted(better, key=self.rank) if not self.rank(other)[0]]
        needed = (self.pace.expect_rest(other) for other in hopeful)
        return next((seconds for seconds in needed if seconds <= self.clock.left), 0.0)

    def explain_skip(self, needed: float, rows: int) -> str:
        """Say why a head is left out."""
        if needed <= self.clock.left:
            return "what time is left is kept for a better head with all contexts: give more time"
        return f"it would take some {needed:,.0f} s with {rows:,} contexts: give more time"

    def plan_seconds(self, number: int, builds: Sequence[Build]) -> float:
        """Seconds still to come, if each head takes as long as those before it, and longer with more contexts."""
        times = [seconds for _, seconds in self.pace.took.values()]
        mean = sum(times) / len(times) if times else 10.0
        later = sum(
            self.count_fit_rows(rung) / self.count_fit_rows(number) * MIN_SURVIVORS
            for rung in range(number + 1, len(RUNGS))
        )
        return mean * (len(builds) + later)
