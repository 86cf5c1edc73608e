"""The outcome of a search, as a record and as a sentence."""

from __future__ import annotations

from shortlist.runtime.processor import read_processor_name

from shortlist_exporter.records.tuning import Part, Promise, TuneRecord

from .choice import Choice
from .fits import Fit
from .promises import describe_promise, describe_shares
from .search import BY_HAND, Head
from .space import DENSE_METHOD

GO_ON = "run the same command again, which goes on from its cache"
MORE_TIME = "give --time-budget more minutes"


def make_record(
    choice: Choice, winner: tuple[Head, Fit] | None, split: dict[str, Part], promise: Promise
) -> TuneRecord:
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
        chosen=None if winner is None else heads.index(winner[0]),
        looks=choice.looks,
        interrupted=search.interrupted,
        seconds=search.clock.elapsed,
        seed=choice.bench.fits.seed,
        machine=read_processor_name(),
        sentence=describe_outcome(choice, winner, promise),
    )


def describe_outcome(choice: Choice, winner: tuple[Head, Fit] | None, promise: Promise) -> str:
    """What the search found, in a sentence: the head that is exported, or why there is none."""
    trials = choice.search.trials
    if winner is None:
        return describe_failure(choice, promise)
    trial, promise_text = trials[winner[0]], describe_promise(promise)
    assert trial.test is not None
    if trial.method == DENSE_METHOD:
        return f"no head but dense keeps {promise_text} in less time than dense: dense itself was exported"
    test, failures = trial.test, f", after {choice.looks - 1} that failed on test" if choice.looks > 1 else ""
    interruption = " of a search that was stopped" if choice.search.interrupted else ""
    return (
        f"{trial.label} is the fastest of {len(trials)} heads{interruption} that keeps {promise_text}{failures}: "
        f"{describe_shares(promise, test)} on {test.rows:,} test contexts, {test.us:,.0f} us a call, "
        f"{test.speedup:.1f} times dense"
    )


def describe_failure(choice: Choice, promise: Promise) -> str:
    """What to say when there is nothing to export."""
    trials, best = choice.search.trials, choice.find_most_precise()
    if best is None:
        why = choice.search.left[0].why if choice.search.left else "no method was given"
        mending = GO_ON if why == BY_HAND else f"{MORE_TIME}, or other --methods"
        return f"no head was measured ({why}): {mending}"
    trial = trials[best]
    split, figures = ("tune", trial.tune) if trial.test is None else ("test", trial.test)
    shares = describe_shares(promise, figures, calibrated=trial.test is not None)
    return (
        f"no head that is faster than dense keeps {describe_promise(promise)}; of {len(trials)} the most precise, "
        f"{trial.label}, reaches {shares} on the {split} split at {figures.speedup:.1f} times dense: "
        f"{advise_more(choice)}"
        "ask for less, or give --allow-dense to export dense, which always does"
    )


def advise_more(choice: Choice) -> str:
    """What may find a head where the search did not end by itself, as the beginning of a list; else nothing."""
    if not choice.search.interrupted:
        return ""
    return f"{GO_ON if any(one.why == BY_HAND for one in choice.search.left) else MORE_TIME}, "
