"""What must hold for every answer of a head, against its reference in float64.

Two numbers say what rounding excuses, both of sums of d products in any order (Higham, Accuracy and Stability, 3.1): a
class's slack in float32 where a plan's own arithmetic decides, that in float64 where a proof does. Both are 0 where
every logit is a whole number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from shortlist.core.results import FloatArray, IdArray, IntArray, TopK
from shortlist.plans.registry import AdaptivePlan, PreviewPlan, ScreenPlan

from .calls import Call
from .heads import Case
from .layers import Doubles
from .references import FLOAT_UNIT, Reference

OVER_ZERO, OVER_ZERO_UNITS = 1e-5, 4 * FLOAT_UNIT  # of log-probabilities: nats, and relative to the largest logit
SUM_ERROR = 1e-5  # nats, of a normaliser's exponentials and their sum
ROW_UNITS = 8 * FLOAT_UNIT  # roundings of a logit, a normaliser, and their difference

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Answers:
    """What a call to a case gave, with what it must be; every array has one row for each row of the call.

    ids, logprobs: [B, n]. logits, slack: [B, n], of these ids; 0 beside -1. given: [B, n], where ids are no -1.
    """

    case: Case
    call: Call
    reference: Reference
    ids: IdArray
    logprobs: FloatArray
    scored: IntArray
    normalizer: str
    legal: Bools

    @classmethod
    def of_topk(cls, case: Case, reference: Reference, call: Call, top: TopK) -> Answers:
        """Of the rows whose reference is settled."""
        rows = reference.settled[call.rows]
        part = take_rows(reference, call.rows[rows])
        legal = np.isfinite(part.logits) & call.mask(part.logits.shape[1])[rows]
        return cls(case, call, part, top.ids[rows], top.logprobs[rows], top.scored[rows], top.normalizer, legal)

    @property
    def given(self) -> Bools:
        return self.ids >= 0

    def take(self, values: npt.NDArray[np.generic]) -> Doubles:
        """[B, V] -> [B, n]: the values of the ids, 0 for -1."""
        some = np.take_along_axis(values, np.maximum(self.ids, 0), axis=1)
        return np.where(self.given, some, 0).astype(np.float64)

    @property
    def logits(self) -> Doubles:
        return self.take(self.reference.logits)

    @property
    def slack(self) -> Doubles:
        return self.take(self.reference.slack)

    @property
    def is_exact(self) -> Bools:
        """[B]: whether the answer is that of the exact head, or proved to be."""
        if self.normalizer in ("exact", "bounded"):
            return np.ones(len(self.ids), bool)
        by_dense = isinstance(self.case.base.plan, ScreenPlan) and self.case.base.dense is not None
        exact: Bools = (self.scored == self.legal.shape[1]) & by_dense & (not self.call.listed)
        return exact

    @property
    def is_proved(self) -> Bools:
        """[B]: whether the answer is a proof's."""
        proved: Bools = (self.scored < self.legal.shape[1]) & (self.normalizer == "bounded")
        return proved


def take_rows(reference: Reference, rows: IdArray) -> Reference:
    """The reference of some contexts of the pool."""
    return Reference(*(values[rows] for values in vars(reference).values()))


def check_topk(answers: Answers) -> Iterator[str]:
    """Check an answer of `topk`; yields a sentence for each kind of fault."""
    faults = list(check_lists(answers))
    yield from faults
    if faults or not len(answers.ids):
        return
    yield from check_probabilities(answers)
    yield from check_equal_rows(answers)
    if has_one_normalizer(answers):
        yield from check_one_normalizer(answers)
    yield from check_cut(answers)
    yield from check_exact(answers)
    yield from check_proofs(answers)


def has_one_normalizer(answers: Answers) -> bool:
    """Whether all classes share a row's normaliser: not where previewed tails have one of their own."""
    plan = answers.case.base.plan
    return not (isinstance(plan, AdaptivePlan) and plan.has_previews and answers.normalizer == "estimated")


def name_row(answers: Answers, bad: Bools) -> str:
    """Name the first row that is bad, of [B] or [B, n], with its answer."""
    row = int(np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))[0])
    ids, logprobs = answers.ids[row][:6].tolist(), answers.logprobs[row][:6].tolist()
    return f"{bad.any(axis=-1).sum() if bad.ndim > 1 else bad.sum()} rows, as {ids} {logprobs}"


def check_lists(answers: Answers) -> Iterator[str]:
    """As many classes as are legal, all legal, none twice, and -inf beside -1 alone."""
    ids, given = answers.ids, answers.given
    wanted = np.minimum(answers.legal.sum(axis=1), ids.shape[1])
    if (short := given.sum(axis=1) != wanted).any():
        yield f"other number of classes than are legal: {name_row(answers, short)}"
    if (holes := given[:, 1:] & ~given[:, :-1]).any():
        yield f"a class after padding: {name_row(answers, holes)}"
    if (illegal := given & ~np.take_along_axis(answers.legal, np.maximum(ids, 0), axis=1)).any():
        yield f"an illegal class: {name_row(answers, illegal)}"
    ranked = np.sort(np.where(given, ids, -1 - np.arange(ids.shape[1])), axis=1)
    if (twice := ranked[:, 1:] == ranked[:, :-1]).any():
        yield f"a class twice: {name_row(answers, twice)}"
    if (wrong := np.isfinite(answers.logprobs) != given).any():
        yield f"-inf or NaN beside a class, or a number beside -1: {name_row(answers, wrong)}"


def check_probabilities(answers: Answers) -> Iterator[str]:
    """No log-probability over 0, nor probabilities over 1 together, but for float32's rounding."""
    most = OVER_ZERO + OVER_ZERO_UNITS * np.abs(answers.logits).max(axis=1, initial=0)
    logprobs = np.where(mark_first(answers.ids), answers.logprobs.astype(np.float64), -np.inf)
    if (over := logprobs > most[:, None]).any():
        yield f"a log-probability over 0: {name_row(answers, over)}"
    elif (many := np.exp(logprobs).sum(axis=1) > 1 + np.expm1(most)).any():
        yield f"probabilities over 1: {name_row(answers, many)}"


def mark_first(ids: IdArray) -> Bools:
    """[B, n]: where a class that is not -1 stands for the first time in its row."""
    order = np.argsort(ids, axis=1, kind="stable")
    ranked = np.take_along_axis(ids, order, axis=1)
    first = ranked >= 0
    first[:, 1:] &= ranked[:, 1:] != ranked[:, :-1]
    marked = np.empty_like(first)
    np.put_along_axis(marked, order, first, axis=1)
    return marked


def check_equal_rows(answers: Answers) -> Iterator[str]:
    """Classes of equal weight and bias have equal scores and come by lower id."""
    order, labels = sort_by_label(answers)
    same = labels[:, 1:] == labels[:, :-1]
    ids = np.take_along_axis(answers.ids, order, axis=1)
    logprobs = np.take_along_axis(answers.logprobs, order, axis=1)
    if (turned := same & (ids[:, 1:] < ids[:, :-1])).any():
        yield f"equal rows not by lower id: {name_row(answers, turned)}"
    if (other := same & (logprobs[:, 1:] != logprobs[:, :-1])).any():
        yield f"equal rows with other scores: {name_row(answers, other)}"


def sort_by_label(answers: Answers) -> tuple[IdArray, IdArray]:
    """The places [B, n] of the ids by label, and in each by rank; and the labels in this order, others for each -1."""
    padding = -1 - np.arange(answers.ids.shape[1])
    labels = np.where(answers.given, answers.take(answers.reference.labels).astype(np.int64), padding)
    order = np.argsort(labels, axis=1, kind="stable")
    return order, np.take_along_axis(labels, order, axis=1)


def check_cut(answers: Answers) -> Iterator[str]:
    """No legal class of equal weight, bias and lower id is left out, where all classes are looked at in one way."""
    by_previews = isinstance(answers.case.base.plan, PreviewPlan) & (answers.normalizer == "estimated")
    if not (by_previews or answers.is_exact.any()):
        return
    order, labels = sort_by_label(answers)
    starts = np.ones_like(labels, bool)
    starts[:, 1:] = labels[:, 1:] != labels[:, :-1]
    places = np.broadcast_to(np.arange(labels.shape[1]), labels.shape)
    turn = places - np.maximum.accumulate(np.where(starts, places, 0), axis=1)
    ranks = np.take_along_axis(answers.take(rank_among_equals(answers)), order, axis=1)
    left = (ranks != turn) & (labels >= 0) & (answers.is_exact | by_previews)[:, None]
    if left.any():
        yield f"an equal row of lower id left out: {name_row(answers, left)}"


def rank_among_equals(answers: Answers) -> IdArray:
    """[B, V]: how many legal classes of the same label and lower id each class has."""
    labels, legal = answers.reference.labels, answers.legal
    order = np.argsort(labels, axis=1, kind="stable")
    ranked = np.take_along_axis(labels, order, axis=1)
    before: IdArray = np.cumsum(np.take_along_axis(legal, order, axis=1), axis=1) - np.take_along_axis(
        legal, order, axis=1
    )
    starts = np.ones_like(ranked, bool)
    starts[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    ranks: IdArray = np.empty_like(before)
    np.put_along_axis(ranks, order, before - np.maximum.accumulate(np.where(starts, before, 0), axis=1), axis=1)
    return ranks


def check_one_normalizer(answers: Answers) -> Iterator[str]:
    """Log-probabilities are the exact logits less one number a row."""
    with np.errstate(invalid="ignore"):
        offsets = np.where(answers.given, answers.logits - answers.logprobs, 0)
    spare = answers.slack + ROW_UNITS * (np.abs(answers.logits) + np.abs(offsets)) + FLOAT_UNIT
    spare += np.where(answers.is_proved, answers.slack.max(axis=1, initial=0), 0)[:, None]
    lowest = np.where(answers.given, offsets - spare, -np.inf).max(axis=1, initial=-np.inf)
    highest = np.where(answers.given, offsets + spare, np.inf).min(axis=1, initial=np.inf)
    if (several := lowest > highest).any():
        yield f"more than one normaliser a row, or wrong logits: {name_row(answers, several)}"


def check_exact(answers: Answers) -> Iterator[str]:
    """Exact answers are the best classes, and their log-probabilities the softmax's, but for float32's rounding."""
    rows = answers.is_exact & ~answers.is_proved
    if (wrong := mark_misranked(answers, answers.reference.slack) & rows[:, None]).any():
        yield f"exact ids are not the best: {name_row(answers, wrong)}"
    whole = rows & (answers.reference.slack == 0).all(axis=1)
    if (tied := whole[:, None] & (answers.ids != rank_classes(answers))).any():
        yield f"exact ids of equal logits not by lower id: {name_row(answers, tied)}"
    error = np.abs(answers.logprobs - answers.take(answers.reference.logprobs))
    logits = np.where(np.isfinite(answers.reference.logits), answers.reference.logits, 0)
    most = answers.reference.slack.max(axis=1) + ROW_UNITS * np.abs(logits).max(axis=1) + SUM_ERROR
    most += logits.shape[1] * FLOAT_UNIT
    if (far := rows[:, None] & answers.given & (error > answers.slack + most[:, None])).any():
        yield f"exact log-probabilities are off by {error[far].max():.3g}: {name_row(answers, far)}"


def check_proofs(answers: Answers) -> Iterator[str]:
    """Proved ids are float64's, equal ones by lower id; log-probabilities are within the certificate's bound."""
    rows = answers.is_proved
    certificate = answers.case.base.manifest.certificate
    if not rows.any() or certificate is None:
        return
    if (wrong := mark_misranked(answers, 2 * answers.reference.exact_slack) & rows[:, None]).any():
        yield f"proved ids are not float64's: {name_row(answers, wrong)}"
    whole = rows & (answers.reference.exact_slack == 0).all(axis=1)
    if (tied := whole[:, None] & (answers.ids != rank_classes(answers))).any():
        yield f"proved ids of equal logits not by lower id: {name_row(answers, tied)}"
    error = np.abs(answers.logprobs - answers.take(answers.reference.logprobs))
    if (far := rows[:, None] & answers.given & (error > certificate.logprob_bound)).any():
        yield f"bound {certificate.logprob_bound:.3g} exceeded by {error[far].max():.3g}: {name_row(answers, far)}"


def mark_misranked(answers: Answers, slack: Doubles) -> Bools:
    """[B, n]: ids that some class which comes later, or not at all, is better than by more than both slacks [B, V]."""
    lower = np.where(answers.legal, answers.reference.logits - slack, -np.inf)
    upper = np.where(answers.given, answers.logits + answers.take(slack), np.inf)
    own = np.where(answers.given, answers.take(lower), -np.inf)
    rows = np.arange(len(own))[:, None].repeat(own.shape[1], axis=1)
    lower[rows[answers.given], answers.ids[answers.given]] = -np.inf
    later = np.concatenate([own[:, 1:], lower.max(axis=1, keepdims=True)], axis=1)
    better: Bools = upper < np.maximum.accumulate(later[:, ::-1], axis=1)[:, ::-1]
    return better


def rank_classes(answers: Answers) -> IdArray:
    """[B, n]: the best legal classes by the reference, equal ones by lower id; -1 where there are fewer."""
    logits = np.where(answers.legal, answers.reference.logits, -np.inf)
    best = np.argsort(-logits, axis=1, kind="stable")[:, : answers.ids.shape[1]]
    return np.where(np.take_along_axis(logits, best, axis=1) > -np.inf, best, -1)


def check_logprobs(answers: Answers) -> Iterator[str]:
    """Check an answer of `logprobs`; -1 and classes of probability 0 have -inf."""
    possible = answers.given & (answers.take(np.isfinite(answers.reference.logits)) > 0)
    if (wrong := np.isfinite(answers.logprobs) != possible).any():
        yield f"scores: -inf or NaN beside a class, or a number beside none: {name_row(answers, wrong)}"
        return
    if not len(answers.ids):
        return
    some = Answers(**(vars(answers) | {"ids": np.where(possible, answers.ids, -1)}))
    for fault in (*check_probabilities(some), *check_one_normalizer(some)):
        yield f"scores: {fault}"


def check_agreement(answers: Answers, scores: FloatArray, same_normalizer: bool) -> Iterator[str]:
    """`logprobs` [B, n] of the ids of `topk`: the same but for the ratio of normalisers, where that may differ."""
    certificate, difference = answers.case.base.manifest.certificate, np.zeros_like(answers.logits)
    difference[answers.given] = (answers.logprobs.astype(np.float64) - scores)[answers.given]
    size = np.abs(answers.logits).max(axis=1, initial=0) + np.abs(
        answers.logits - answers.logprobs, where=answers.given, out=np.zeros_like(answers.logits)
    ).max(axis=1, initial=0)
    most = 2 * answers.slack.max(axis=1, initial=0) + ROW_UNITS * size + 2 * SUM_ERROR
    if certificate is not None and answers.normalizer == "bounded":
        most += np.where(answers.is_proved, 0, certificate.logprob_bound)
    if same_normalizer and (off := answers.given & (np.abs(difference) > most[:, None])).any():
        yield f"topk and logprobs differ by {np.abs(difference[off]).max():.3g}: {name_row(answers, off)}"
