"""What a search came to, as a record and as a sentence."""

from __future__ import annotations

from shortlist_exporter.records.tuning import Part, Promise, TuneRecord

from .cache import machine
from .choice import Choice
from .fits import Fit
from .promises import reached, said
from .search import Head
from .space import DENSE


def recorded(choice: Choice, chosen: tuple[Head, Fit] | None, split: dict[str, Part], promise: Promise) -> TuneRecord:
    """Everything that was tried, fastest first."""
    search = choice.search
    heads = sorted(search.trials, key=lambda head: 1 / search.trials[head].tune.speedup)
    return TuneRecord(
        promise=promise,
        fit=split["fit"],
        tune=split["tune"],
        test=split["test"],
        trials=[search.trials[head] for head in heads],
        left=search.left,
        chosen=None if chosen is None else heads.index(chosen[0]),
        looks=choice.looks,
        interrupted=search.interrupted,
        seconds=search.clock.spent,
        seed=choice.bench.fits.seed,
        machine=machine(),
        sentence=sentence(choice, chosen, promise),
    )


def sentence(choice: Choice, chosen: tuple[Head, Fit] | None, promise: Promise) -> str:
    """The outcome."""
    trials = choice.search.trials
    if chosen is None:
        return nothing(choice, promise)
    trial, asked = trials[chosen[0]], said(promise)
    assert trial.test is not None
    if trial.method == DENSE:
        return f"no head but dense keeps {asked} in less time than dense: dense itself was exported"
    found, failed = trial.test, f", after {choice.looks - 1} that failed on test" if choice.looks > 1 else ""
    stopped = " of a search that was stopped" if choice.search.interrupted else ""
    return (
        f"{trial.label} is the fastest of {len(trials)} heads{stopped} that keeps {asked}{failed}: "
        f"{reached(promise, found)} on {found.rows:,} test contexts, {found.us:,.0f} us a call, "
        f"{found.speedup:.1f} times dense"
    )


def nothing(choice: Choice, promise: Promise) -> str:
    """What to say when there is nothing to export."""
    trials, best = choice.search.trials, choice.best()
    if best is None:
        why = choice.search.left[0].why if choice.search.left else "no method was given"
        return f"no head was measured ({why}): give --time-budget more minutes, or other --methods"
    trial = trials[best]
    split, found = ("tune", trial.tune) if trial.test is None else ("test", trial.test)
    figures = f"{reached(promise, found)} on the {split} split at {found.speedup:.1f} times dense"
    return (
        f"no head that is faster than dense keeps {said(promise)}; of {len(trials)} the most precise, {trial.label}, "
        f"reaches {figures}: ask for less, or give --allow-dense to export dense, which always does"
    )
