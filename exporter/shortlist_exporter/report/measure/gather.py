"""The figures of a report: what one sample shows of a head, several samples held against its promise."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from shortlist.core.filters import UNRESTRICTED
from shortlist.evaluation.measurement import DEPTHS
from shortlist.evaluation.statistics import summary
from shortlist.head import Head
from shortlist.plans.registry import Plan

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.records.report import Band, Calibration, Candidates, Document, Domain, Measured, Missed, Point
from shortlist_exporter.verify.quality import Truth

from .answers import Answers, Namer, ask
from .parts import parts_of
from .samples import Sample
from .timing import Call, interleaved, speedup
from .variants import variants

SHARED_ROWS = 1024  # on which every query-time option is compared
K = 5  # asked for while timing
SECONDS = 2.0  # timed, of single rows
BATCHES = (8, 32)
BATCH_SECONDS = 0.5
BINS = 40
BANDS = 10
LEAST_BAND = 20
POINTS = 300
PERCENTS = (1, 5, 25, 50, 75, 95, 99)
MOST_MISSED = 10
LEAST_DOCUMENT = 10  # rows, for a precision of its own


def measured(head: Head, sample: Sample) -> tuple[Measured, Domain]:
    """Every figure of the sample, times included; and the sample as a domain, not yet held against a promise."""
    answers, name = ask(head, head.plan, sample), Namer(head.labels)
    points, times, timed = compared(head, sample)
    found = Measured(
        sample=sample.name,
        rows=len(sample.contexts),
        shared_rows=min(len(sample.contexts), SHARED_ROWS),
        timed_rows=timed,
        threads=head.threads,
        device=head.device,
        points=points,
        batch_times=times,
        candidates=candidates(answers.top.scored),
        calibration=calibration(head, answers),
        parts=parts_of(head, answers, name),
        missed=missed(answers, name),
    )
    return found, domain_of(sample, answers)


def domain(head: Head, sample: Sample) -> Domain:
    """A further sample's precision and errors."""
    return domain_of(sample, ask(head, head.plan, sample))


def domain_of(sample: Sample, answers: Answers) -> Domain:
    """Precision and errors of answers."""
    errors = answers.errors()
    size = None if errors is None else np.abs(errors)
    return Domain(
        name=sample.name,
        rows=len(sample.contexts),
        precision=answers.precision(),
        error_mean=None if size is None else float(size.mean()),
        error_p99=None if size is None else float(np.quantile(size, 0.99)),
        documents=[] if sample.documents is None else documents(sample.documents, answers),
        broken=[],
    )


def documents(numbers: npt.NDArray[np.int32], answers: Answers) -> list[Document]:
    """P@1 of every document with enough rows, worst first; none where there is but one, or no truth."""
    if answers.true is None:
        return []
    hits = answers.hits(1)[:, 0]
    rows = {int(number): numbers == number for number in np.unique(numbers)}
    found = [
        Document(number=number, rows=int(inside.sum()), p_at_1=float(hits[inside].mean()))
        for number, inside in rows.items()
        if inside.sum() >= LEAST_DOCUMENT
    ]
    return sorted(found, key=lambda document: document.p_at_1) if len(found) > 1 else []


def candidates(scored: npt.NDArray[np.int32]) -> Candidates:
    """How many classes were scored for a row: evenly wide bins, one where all are alike."""
    counts, edges = np.histogram(scored, bins=1 if scored.min() == scored.max() else BINS)
    return Candidates(summary=summary(scored, (50, 99, 100)), edges=edges.tolist(), counts=counts.tolist())


def calibration(head: Head, answers: Answers) -> Calibration | None:
    """Errors of the estimated normaliser; None where it is exact or there is no truth."""
    errors = answers.errors()
    if errors is None or head.manifest.normalizer == "exact":
        return None
    assert answers.truth is not None
    exact = answers.top.logits[:, 0] - answers.truth.log_normalizer
    finite = np.isfinite(exact) & np.isfinite(errors)
    exact, errors = exact[finite], errors[finite]
    pairs = np.stack([exact, exact + errors], axis=1)[:POINTS].astype(float)
    return Calibration(
        normalizer=head.manifest.normalizer,
        quantiles={f"p{percent}": float(np.percentile(errors, percent)) for percent in PERCENTS},
        bands=bands(exact, errors),
        points=[(pair[0], pair[1]) for pair in pairs.tolist()],
    )


def bands(exact: FloatArray, errors: FloatArray) -> list[Band]:
    """Percentiles of `errors` [n] in equally filled bins of `exact` [n]."""
    parts = np.array_split(np.argsort(exact), min(BANDS, max(1, len(exact) // LEAST_BAND)))
    return [
        Band(at=float(np.median(exact[part])), rows=len(part), p5=low, p50=middle, p95=high)
        for part in parts
        if len(part)
        for low, middle, high in [np.percentile(errors[part], (5, 50, 95)).tolist()]
    ]


def missed(answers: Answers, name: Namer) -> list[Missed]:
    """The classes most often lost from the true five best."""
    if answers.true is None:
        return []
    hits = answers.hits(K)
    true = answers.true[:, : hits.shape[1]]
    times, lost = (np.bincount(ids, minlength=answers.classes) for ids in (true.ravel(), true[~hits]))
    worst = [int(i) for i in np.argsort(-lost, kind="stable")[:MOST_MISSED] if lost[i]]
    return [Missed(word=name(i), times=int(times[i]), missed=int(lost[i])) for i in worst]


def compared(head: Head, sample: Sample) -> tuple[list[Point], dict[int, float], int]:
    """This head, its options and the dense head on the same rows; times over dense's by batch; rows timed."""
    rows = sample.contexts[:SHARED_ROWS]
    plans = {"this head": head.plan} | variants(head, rows)
    dense = head.dense if head.dense is not head.plan else None
    calls = {label: call(head, plan) for label, plan in (plans | ({"dense": dense} if dense else {})).items()}
    spent = interleaved(calls, rows, 1, SECONDS)
    asked = {label: ask(head, plan, first(sample, SHARED_ROWS)) for label, plan in plans.items()}
    own = float(asked["this head"].top.scored.mean())
    points = [point(head, label, answers, spent, own) for label, answers in asked.items()]
    timed = spent["this head"].size
    if dense is None:
        return points, {}, timed
    return [*points, dense_point(head, spent, sample)], batch_times(calls, sample.contexts, spent), timed


def first(sample: Sample, rows: int) -> Sample:
    """The sample's first rows."""
    truth = sample.truth
    if truth is not None:
        exact, normalizer = truth.logprobs[:rows], truth.log_normalizer[:rows]
        truth = Truth(truth.contexts[:rows], truth.ids[:rows], exact, normalizer)
    return Sample(sample.name, sample.contexts[:rows], truth)


def point(head: Head, label: str, answers: Answers, spent: Mapping[str, FloatArray], own: float) -> Point:
    """One plan's figures. Its multiply-adds are the export's, but for the classes that it scores more or less."""
    quality, scored = head.manifest.quality, float(answers.top.scored.mean())
    return Point(
        label=label,
        kind="this head" if label == "this head" else "its options",
        precision={k: found.mean for k, found in answers.precision().items()},
        us=float(np.median(spent[label]) * 1e6),
        times_dense=over_dense(spent, label),
        macs=None if quality is None else quality.cost_macs + (scored - own) / head.manifest.classes,
        scored=scored,
    )


def dense_point(head: Head, spent: Mapping[str, FloatArray], sample: Sample) -> Point:
    """The dense head: right by definition where it is the reference, of no known precision where it is not."""
    truth = sample.truth if head.manifest.reference == "dense" else None
    depth = 0 if truth is None else truth.ids.shape[1]
    right = {k: 1.0 for k in DEPTHS if k <= depth}
    us = float(np.median(spent["dense"]) * 1e6)
    return Point(label="dense", kind="dense", precision=right, us=us, times_dense=1.0, macs=1.0)


def over_dense(spent: Mapping[str, FloatArray], label: str) -> float | None:
    """Dense's time over this one's; None where dense was not timed."""
    return speedup(spent["dense"], spent[label], 1) if "dense" in spent else None


def batch_times(calls: Mapping[str, Call], contexts: FloatArray, single: Mapping[str, FloatArray]) -> dict[int, float]:
    """Batch -> dense's time over this head's, for batches that the rows fill."""
    two = {name: calls[name] for name in ("this head", "dense")}
    spent = {1: single} | {batch: interleaved(two, contexts, batch, BATCH_SECONDS) for batch in BATCHES}
    return {
        batch: speedup(times["dense"], times["this head"], batch)
        for batch, times in spent.items()
        if times["dense"].size
    }


def call(head: Head, plan: Plan) -> Call:
    """The plan as a timed call."""
    k = min(K, head.manifest.max_k)
    return lambda rows: head.run(plan, rows, k, UNRESTRICTED)
