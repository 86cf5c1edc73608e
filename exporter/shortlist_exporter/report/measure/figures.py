"""The figures of a report: what one sample shows of a head, several samples held against its promise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from shortlist.evaluation.evaluator import summarize_depth, summarize_kinds
from shortlist.evaluation.measurement import judge_depth
from shortlist.evaluation.statistics import summarize
from shortlist.head import Head

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.records.report import (
    Band,
    Calibration,
    Candidates,
    Document,
    Domain,
    MissedClass,
    SampleFigures,
)

from .answers import Answers, Namer, answer_sample
from .comparison import compare_plans, count_shared_rows
from .parts import measure_parts
from .samples import Sample

CANDIDATE_BINS = 40
MAX_BANDS = 10
MIN_BAND_ROWS = 20
MAX_POINTS = 300  # of the picture of log-probabilities
ERROR_PERCENTILES = (1, 5, 25, 50, 75, 95, 99)
MISSED_K = 5  # true classes of a row among which the missed ones are counted
MAX_MISSED_CLASSES = 10  # classes
MIN_DOCUMENT_ROWS = 10  # for a precision of its own


def measure_sample(head: Head, sample: Sample) -> tuple[SampleFigures, Domain]:
    """Every figure of the sample, times included; and the sample as a domain, not yet held against a promise."""
    answers, name = answer_sample(head, head.plan, sample), Namer(head.labels)
    points, times, timed_rows = compare_plans(head, sample, answers)
    figures = SampleFigures(
        sample=sample.name,
        rows=len(sample.contexts),
        shared_rows=count_shared_rows(head, sample),
        timed_rows=timed_rows,
        threads=head.threads,
        device=head.device,
        points=points,
        batch_times=times,
        candidates=count_candidates(answers.top.scored),
        calibration=measure_calibration(head, answers),
        parts=measure_parts(head, answers, name),
        missed=find_missed_classes(answers, name),
    )
    return figures, describe_domain(head, sample, answers)


def measure_domain(head: Head, sample: Sample) -> Domain:
    """A further sample's precision and errors."""
    return describe_domain(head, sample, answer_sample(head, head.plan, sample))


def describe_domain(head: Head, sample: Sample, answers: Answers) -> Domain:
    """Precision and errors of answers, and what risk says of single classes."""
    errors = answers.measure_errors()
    size = None if errors is None else np.abs(errors)
    rows = None if sample.truth is None else judge_depth(head, answers.tops[1], sample.truth.best, 1)
    hits_size = None if size is None else size[answers.find_best_first()]
    return Domain(
        name=sample.name,
        rows=len(sample.contexts),
        precision=answers.estimate_precision(sample.documents),
        error_mean=None if size is None else float(size.mean()),
        error_p99=None if size is None else float(np.quantile(size, 0.99)),
        error_hits_mean=None if hits_size is None or not hits_size.size else float(hits_size.mean()),
        error_hits_p99=None if hits_size is None or not hits_size.size else float(np.quantile(hits_size, 0.99)),
        documents=[] if sample.documents is None else measure_documents(sample.documents, answers),
        asked=None if rows is None else summarize_depth(rows.hits, rows.risk, sample.documents),
        kinds=summarize_kinds(rows, sample.kinds, sample.documents) or {},
        broken=[],
    )


def measure_documents(numbers: npt.NDArray[np.int32], answers: Answers) -> list[Document]:
    """P@1 of every document with enough rows, worst first; none where there is but one, or no truth.

    numbers: [n], each row's document.
    """
    if answers.true is None:
        return []
    hits = answers.mark_hits(1)[:, 0]
    rows = {int(number): numbers == number for number in np.unique(numbers)}
    documents = [
        Document(number=number, rows=int(inside.sum()), p_at_1=float(hits[inside].mean()))
        for number, inside in rows.items()
        if inside.sum() >= MIN_DOCUMENT_ROWS
    ]
    return sorted(documents, key=lambda document: document.p_at_1) if len(documents) > 1 else []


def count_candidates(scored: npt.NDArray[np.int32]) -> Candidates:
    """How many classes were scored for a row: evenly wide bins, one where all are alike."""
    counts, edges = np.histogram(scored, bins=1 if scored.min() == scored.max() else CANDIDATE_BINS)
    return Candidates(summary=summarize(scored, (50, 99, 100)), edges=edges.tolist(), counts=counts.tolist())


def measure_calibration(head: Head, answers: Answers) -> Calibration | None:
    """Errors of the estimated normaliser; None where it is exact or there is no truth."""
    errors = answers.measure_errors()
    if errors is None or head.manifest.normalizer == "exact":
        return None
    assert answers.truth is not None
    exact = answers.top.logits[:, 0] - answers.truth.log_normalizer
    finite = np.isfinite(exact) & np.isfinite(errors)
    exact, errors = exact[finite], errors[finite]
    pairs = np.stack([exact, exact + errors], axis=1)[:MAX_POINTS].astype(float)
    return Calibration(
        normalizer=head.manifest.normalizer,
        quantiles={f"p{percent}": float(np.percentile(errors, percent)) for percent in ERROR_PERCENTILES},
        bands=make_bands(exact, errors),
        points=[(pair[0], pair[1]) for pair in pairs.tolist()],
    )


def make_bands(exact: FloatArray, errors: FloatArray) -> list[Band]:
    """Percentiles of `errors` [n] in equally filled bins of `exact` [n]."""
    parts = np.array_split(np.argsort(exact), min(MAX_BANDS, max(1, len(exact) // MIN_BAND_ROWS)))
    return [
        Band(at=float(np.median(exact[part])), rows=len(part), p5=low, p50=middle, p95=high)
        for part in parts
        if len(part)
        for low, middle, high in [np.percentile(errors[part], (5, 50, 95)).tolist()]
    ]


def find_missed_classes(answers: Answers, name: Namer) -> list[MissedClass]:
    """The classes most often lost from the true five best."""
    if answers.true is None:
        return []
    hits = answers.mark_hits(MISSED_K)
    true = answers.true[:, : hits.shape[1]]
    times, misses = (np.bincount(ids, minlength=answers.classes) for ids in (true.ravel(), true[~hits]))
    worst = [int(i) for i in np.argsort(-misses, kind="stable")[:MAX_MISSED_CLASSES] if misses[i]]
    return [MissedClass(word=name(i), times=int(times[i]), missed=int(misses[i])) for i in worst]
