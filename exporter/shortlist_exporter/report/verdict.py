"""The verdict on a promise: every sample is judged against it, and one sentence says the outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shortlist.bundle.manifest import Quality
from shortlist.evaluation.statistics import PRECISION_DEPTHS, bound_mean

from shortlist_exporter.records.report import CALIBRATION_SAMPLE, HELD_OUT, Domain, TuneTrials, Verdict

REQUEST_SOURCE = "asked for at the export"
TUNE_SOURCE = "the targets of shortlist tune"
HEAD_SOURCE = "the promise that the head searches by"
EXPORT_SOURCE = "the lower end of what was measured at the export"
NO_TRUTH = (
    "the bundle has no dense head whose exact answers the promise could be held against: export it without --no-dense, "
    "or without --no-report for a report on the rows that the export measures"
)
NO_PROMISE = "the bundle has no promise and no measured P@k: export it again, with --min-p1 for a promise of your own"
NOT_MEASURED = "no P@k of the promise was measured: run `shortlist report` with --contexts, which measures every one"

Promise = Mapping[int, float]


def choose_promise(
    quality: Quality | None, request_promise: Promise, tune_trials: TuneTrials | None, in_force: float | None = None
) -> tuple[dict[int, float], str]:
    """P@k by k and whose it is: what was asked for, else what the head searches by, as a server has it.

    Where that is nothing, it is the least that the manifest's held-out rows leave likely.
    """
    if request_promise:
        return dict(request_promise), REQUEST_SOURCE
    if tune_trials is not None and tune_trials.targets:
        return tune_trials.targets, TUNE_SOURCE
    if in_force is not None:
        return dict.fromkeys(PRECISION_DEPTHS[:2], in_force), HEAD_SOURCE
    if quality is None:
        return {}, EXPORT_SOURCE
    lows = {k: bound_mean(share, quality.rows).low for k, share in ((1, quality.p_at_1), (5, quality.p_at_5))}
    return lows, EXPORT_SOURCE


def judge_domain(domain: Domain, promise: Promise) -> Domain:
    """The sample with the k whose 95 % interval lies wholly under the promise."""
    breaches = [k for k, least in promise.items() if k in domain.precision and domain.precision[k].high < least]
    return domain.model_copy(update={"broken": breaches})


def give_verdict(domains: list[Domain], promise: Promise, source: str) -> Verdict:
    """The verdict over all samples, as a heading and a sentence."""
    domains_with_figures = [domain for domain in domains if domain.precision]
    measured = {k for domain in domains_with_figures for k in domain.precision} & promise.keys()
    if not measured:
        sentence = explain_unchecked(domains_with_figures, promise)
        return Verdict(status="unknown", heading="Promise not checked", sentence=sentence)
    failures = [domain for domain in domains_with_figures if domain.broken]
    targets = ", ".join(f"P@{k} {least:.4g}" for k, least in promise.items() if k in measured)
    successes = join_words([describe_rows(domain) for domain in domains_with_figures if not domain.broken])
    sentences = [f"{targets}, {source}, holds within sampling error on {successes}"] if successes else []
    sentences += [describe_breach(domain, promise) for domain in failures]
    heading = f"Promise not kept on {join_words([domain.name for domain in failures])}" if failures else "Promise kept"
    return Verdict(status="broken" if failures else "kept", heading=heading, sentence="; ".join(sentences))


def explain_unchecked(domains_with_figures: list[Domain], promise: Promise) -> str:
    """Why nothing of the promise was checked, and how to have it checked."""
    if not domains_with_figures:
        return NO_TRUTH
    return NOT_MEASURED if promise else NO_PROMISE


def describe_rows(domain: Domain) -> str:
    """A sample's name and how many rows it has."""
    return f"{domain.name} ({domain.rows:,} row{'s' * (domain.rows != 1)})"


def join_words(words: Sequence[str]) -> str:
    """Words as a sentence lists them: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def describe_breach(domain: Domain, promise: Promise) -> str:
    """What was measured where more was promised."""
    shares = ", ".join(
        f"P@{k} is {domain.precision[k].mean:.4f} ({domain.precision[k].low:.4f} to {domain.precision[k].high:.4f}), "
        f"{promise[k]:.4g} promised"
        for k in domain.broken
    )
    return f"it does not hold on {domain.name}: {shares}"


def are_own_rows(domains: list[Domain]) -> bool:
    """Whether nothing was measured but rows that the bundle came with."""
    return all(domain.name in (HELD_OUT, CALIBRATION_SAMPLE) for domain in domains)
