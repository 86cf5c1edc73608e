"""A bundle held against its reference on contexts of the user's: `evaluate(head, contexts, targets)`.

The reference is its dense head, or the head's own whole distribution; figures on targets stand beside dense in both.

The figures are those of the papers. P@k, coverage and Z~/Z are the plan's alone, whatever the number of rows: a head
must not look good because dense answered for it. P@k and coverage ask for each k, since a plan may widen for a larger.
KL and NLL are of the plan's full distribution, which takes previews for the classes that were not scored, as the
papers' do; Z~/Z and the log-probability errors are of what the head returns for k = 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from shortlist.bundle.manifest import Strict
from shortlist.core.results import DoubleArray, IdArray
from shortlist.head import Head

from . import statistics
from .measurement import (
    AskedRows,
    RowFigures,
    TargetRows,
    TruthRows,
    check_documents,
    check_targets,
    choose_distinct_rows,
    concatenate_figures,
    limit_depth,
    measure_chunk,
    measure_dense_share,
    read_chunks,
)
from .statistics import Share, Summary, read_promise, warn_of_promise

MAX_EVALUATED_ROWS = 10_000  # measured by default
SINGLE_ROWS = 1000  # asked one by one
BAND_MISSES = 20  # expected in a band of rows of about equal risk
LOGPROB_PERCENTILES = (50, 90, 99, 100)

RowProgress = Callable[[int, int], None]


class Targets(Strict):
    """Figures on the gold classes. accuracy: by k, how often the target is among the k best.

    nll, perplexity: mean, nats, of the whole distribution. scored_nll, scored_perplexity: by the log-probabilities that
    /v1/score answers for the targets, which every plan has; None for dense, whose two are one.
    """

    accuracy: dict[int, Share]
    nll: float | None
    perplexity: float | None
    scored_nll: float | None
    scored_perplexity: float | None


class Band(Strict):
    """Rows of about equal risk: its mean, and the share of the k best that they missed."""

    rows: int
    risk: float
    missed: float


class Depth(Strict):
    """Requests for k classes. precision: P@k. missed: share of the k best that was not returned; risk: by estimate.

    bands: by falling risk, each of `BAND_MISSES` expected misses at least; none where no risk is estimated.
    """

    rows: int
    precision: Share
    missed: float
    risk: float | None
    bands: list[Band]


class Evaluation(Strict):
    """The figures of `evaluate`. One that cannot be had is None, and `missing` says why; JSON writes infinity as null.

    rows: distinct contexts measured. precision: P@k of requests for k classes, by k. promised: the manifest's P@k by k.
    asked: by k, more figures of requests for so many. kinds: requests for one class, by kind of text. coverage: by m,
    how many of the true top m are in the head's top m, mean. order_kept: share of rows whose first ten came in the true
    order. kl: KL(dense || head), nats. z_ratio: Z~/Z. logprob_error: |error| of the ten returned log-probabilities,
    nats. logprob_error_hits: the same of the rows whose best class was found alone; None where there is none.
    head_targets, dense_targets: on the gold classes. candidates: classes scored for a row by the plan. answered_dense:
    share of rows, asked one by one, that dense answered. cost_macs, cost_bytes: per query relative to dense,
    projections and routers included. warning: a sentence where the bundle's promise does not hold here.
    """

    name: str
    version: int
    method: str
    rows: int
    seed: int
    missing: list[str]
    precision: dict[int, Share] | None
    promised: dict[int, float] | None
    asked: dict[int, Depth] | None
    kinds: dict[str, Depth] | None
    coverage: dict[int, float] | None
    order_kept: float | None
    kl: Summary | None
    z_ratio: Summary | None
    logprob_error: Summary | None
    logprob_error_hits: Summary | None
    head_targets: Targets | None
    dense_targets: Targets | None
    candidates: Summary
    answered_dense: float
    cost_macs: float | None
    cost_bytes: float | None
    warning: str | None


def evaluate(
    head: Head,
    contexts: npt.ArrayLike,
    targets: npt.ArrayLike | None = None,
    *,
    rows: int = MAX_EVALUATED_ROWS,
    seed: int = 0,
    at: Sequence[int] = (),
    kinds: Mapping[str, IdArray] | None = None,
    documents: npt.ArrayLike | None = None,
    progress: RowProgress | None = None,
) -> Evaluation:
    """Measure `head` on at most `rows` distinct rows of `contexts`, in random order.

    contexts: [n, d] float32. targets: [n] whole numbers, the gold class of each row. at: k for each of which requests
    are measured in detail. kinds: positions of the rows of each kind of text, for figures by kind. documents: [n]
    whole numbers, the document of each row, for intervals over documents, since rows of one are alike. progress: gets
    rows done and all. Truth is the bundle's reference; without it nothing is reported that would need it. Raises
    BadInput.
    """
    array = head.check_contexts(contexts)
    gold = None if targets is None else check_targets(head, array, targets)
    owners = None if documents is None else check_documents(array, documents)
    for k in at:
        head.check_k(k)
    order = choose_distinct_rows(array, rows, seed)
    depths = sorted({1, *at}) if kinds else at
    parts: list[RowFigures] = []
    for chunk in read_chunks(head, array, gold, order, depths):
        parts.append(measure_chunk(head, chunk, depths))
        if progress is not None:
            progress(sum(len(part.scored) for part in parts), len(order))
    dense_share = measure_dense_share(head, array[order[:SINGLE_ROWS]])
    members = {name: np.flatnonzero(np.isin(order, rows)) for name, rows in (kinds or {}).items()}
    owners = None if owners is None else owners[order]
    return summarize_rows(head, concatenate_figures(parts), members, owners, seed, dense_share)


def summarize_rows(
    head: Head,
    rows: RowFigures,
    kinds: Mapping[str, IdArray],
    documents: IdArray | None,
    seed: int,
    dense_share: float,
) -> Evaluation:
    """All rows' figures as one record. kinds: positions of each kind's rows among them. documents: [n] of the rows."""
    manifest, quality, truth = head.manifest, head.manifest.quality, rows.truth
    precision = None if truth is None else estimate_shares(truth.hits, documents)
    asked = {} if truth is None else truth.asked
    promised = read_promise(quality, limit_depth(head))
    return Evaluation(
        name=manifest.name,
        version=manifest.version,
        method=manifest.method,
        rows=len(rows.scored),
        seed=seed,
        missing=explain_missing(head, rows),
        precision=precision,
        promised=promised,
        asked=None
        if truth is None
        else {k: summarize_depth(of_k.hits, of_k.risk, documents) for k, of_k in asked.items()},
        kinds=None if truth is None else summarize_kinds(asked.get(1), kinds, documents),
        coverage=None if truth is None else {size: float(row.mean()) for size, row in truth.coverage.items()} or None,
        order_kept=None if truth is None else float(truth.order_kept.mean()),
        kl=None if truth is None else summarize_any(truth.kl, 99),
        z_ratio=None if truth is None else statistics.summarize(truth.z_ratio, (1, 99)),
        logprob_error=None if truth is None else statistics.summarize(truth.error, LOGPROB_PERCENTILES),
        logprob_error_hits=None if truth is None else summarize_hits(truth),
        head_targets=summarize_targets(rows.head_targets, documents),
        dense_targets=summarize_targets(rows.dense_targets, documents),
        candidates=statistics.summarize(rows.scored, (99,)),
        answered_dense=dense_share,
        cost_macs=None if quality is None else quality.cost_macs,
        cost_bytes=None if quality is None else quality.cost_bytes,
        warning=warn_of_promise(precision, promised, 0 if quality is None else quality.rows, manifest.promise),
    )


def estimate_shares(hits: Mapping[int, DoubleArray], documents: IdArray | None) -> dict[int, Share]:
    """The mean of rows' shares [n] with its interval over documents, by k."""
    return {k: statistics.estimate_share(of_k, documents) for k, of_k in hits.items()}


def summarize_depth(hits: DoubleArray, risk: DoubleArray, documents: npt.NDArray[np.integer] | None = None) -> Depth:
    """P@k of requests for k classes, and what their risks had said; none where a row has none."""
    precision = statistics.estimate_share(hits, documents)
    missed = 1 - precision.mean
    if np.isnan(risk).any():
        return Depth(rows=len(hits), precision=precision, missed=missed, risk=None, bands=[])
    bands = [
        Band(rows=len(rows), risk=float(risk[rows].mean()), missed=float(1 - hits[rows].mean()))
        for rows in split_by_risk(risk)
    ]
    return Depth(rows=len(hits), precision=precision, missed=missed, risk=float(risk.mean()), bands=bands)


def split_by_risk(risk: DoubleArray) -> list[IdArray]:
    """Positions of the rows of each band, by falling `risk` [n]; the last band takes what is left over."""
    order = np.argsort(-risk, kind="stable")
    band = np.floor(risk[order].cumsum() / BAND_MISSES).astype(np.int64)
    last = max(0, int(risk.sum() / BAND_MISSES) - 1)
    return np.split(order, np.flatnonzero(np.diff(np.minimum(band, last))) + 1)


def summarize_kinds(
    asked: AskedRows | None, kinds: Mapping[str, IdArray], documents: npt.NDArray[np.integer] | None = None
) -> dict[str, Depth] | None:
    """Requests for k classes by kind of text; None where no kinds are named, or nothing was asked."""
    if asked is None:
        return None
    rows = {name: positions for name, positions in kinds.items() if positions.size}
    owners = {name: None if documents is None else documents[some] for name, some in rows.items()}
    return {
        name: summarize_depth(asked.hits[some], asked.risk[some], owners[name]) for name, some in rows.items()
    } or None


def summarize_hits(truth: TruthRows) -> Summary | None:
    """|error| of log-probabilities in the rows whose best class was found, nats; None where there is none."""
    hits = truth.best_first == 1
    return statistics.summarize(truth.error[hits], LOGPROB_PERCENTILES) if hits.any() else None


def summarize_any(values: DoubleArray | None, *percentiles: int) -> Summary | None:
    """Mean and percentiles of a figure, where it was measured."""
    return None if values is None else statistics.summarize(values, percentiles)


def summarize_targets(rows: TargetRows | None, documents: IdArray | None) -> Targets | None:
    """Figures on the targets, where there are any."""
    if rows is None:
        return None
    return Targets(
        accuracy=estimate_shares(rows.hits, documents),
        nll=None if rows.nll is None else float(rows.nll.mean()),
        perplexity=None if rows.nll is None else statistics.compute_perplexity(rows.nll),
        scored_nll=None if rows.scored_nll is None else float(rows.scored_nll.mean()),
        scored_perplexity=None if rows.scored_nll is None else statistics.compute_perplexity(rows.scored_nll),
    )


def explain_missing(head: Head, rows: RowFigures) -> list[str]:
    """A sentence for every kind of figure that could not be had."""
    sentences = []
    name = head.manifest.name
    if head.exact is None:
        sentences.append(f"{name} was exported with --no-dense: without its dense head there is no truth, so no P@k")
    elif rows.truth is None:
        sentences.append(f"{name} is in shards, which give no logits of all classes: there is no truth, so no P@k")
    if head.plan.compute_distribution(np.empty((0, head.manifest.dim), np.float32)) is None:
        sentences.append(
            f"plan {head.manifest.plan} gives no logits for most classes, so no KL and no NLL of the "
            "head's whole distribution"
        )
    if rows.head_targets is None:
        sentences.append("there are no targets, so no target accuracy, NLL and perplexity")
    elif head.is_own_reference and head.dense is None:
        sentences.append(
            f"{name} was exported with --no-dense, so no dense head's figures on the targets beside its own"
        )
    return sentences
