"""Results of a head and of a plan, and the array types that all packages share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from shortlist.errors import BadInput

Labels = npt.NDArray[np.object_]

FloatArray = npt.NDArray[np.float32]
IdArray = npt.NDArray[np.int64]
IntArray = npt.NDArray[np.int32]
DoubleArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
ReadTexts = Callable[[IdArray], Labels]  # the texts of ids, None of an id of -1

NO_CLASS = -1  # the id in a row that has fewer than k permitted classes
NORMALIZERS = ("exact", "bounded", "estimated", "shortlist")  # from the strongest statement to the weakest
PROVED_NORMALIZERS = NORMALIZERS[:2]  # of answers of which no class is missed


@dataclass(slots=True)  # not frozen: that costs a microsecond for each
class TopK:
    """The k best classes of B context vectors, best first; equal scores by lower id.

    ids: [B, k] int64, -1 where the row's lists leave fewer than k classes.
    logprobs: [B, k] float32, natural logarithms, -inf beside an id of -1.
    scored: [B] int32, how many classes were scored for the row; V means that the dense head answered.
    normalizer: what the log-probabilities are normalised over: `exact`, `bounded`, `estimated` or `shortlist`.
    labels: [B, k] of str, the printable names of the ids, None beside an id of -1; None where none were asked for.
    risk: [B] float32, the estimated share of the row's k best permitted classes that are not among its ids, so at
    k = 1 the probability that the best one is not; 0 where dense or a proof answered, NaN where nothing is estimated;
    None where none was asked for.
    promise: the mean P@k that the search for these answers was to keep; None where none was made, or needed.
    names: [B, k] of str, the names of the ids, None beside an id of -1; None where none were asked for.
    scores: [B, k] float32, what log-probabilities are normalised from: the logits, so of a layer without a bias the
    inner products of context and class times the logit scale; -inf beside an id of -1. None where none were asked for.
    coverage: the share of the classes that were searched: under 1 where shards of a head were lost.
    """

    ids: IdArray
    logprobs: FloatArray
    scored: IntArray
    normalizer: str
    labels: Labels | None = None
    risk: FloatArray | None = None
    promise: float | None = None
    scores: FloatArray | None = None
    names: Labels | None = None
    coverage: float = 1.0

    __hash__ = None  # type: ignore[assignment]  # its arrays may be changed

    def __eq__(self, other: object) -> bool:
        """Whether all is equal, arrays element by element; NaN, of a risk, equals NaN."""
        if not isinstance(other, TopK):
            return NotImplemented
        return all(are_equal(getattr(self, field.name), getattr(other, field.name)) for field in fields(self))

    @classmethod
    def concat(cls, parts: list[TopK]) -> TopK:
        """Concatenate the rows of one or more results of the same k; the weakest normalizer holds for all of them."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.logprobs for part in parts]),
            np.concatenate([part.scored for part in parts]),
            find_weakest_normalizer([part.normalizer for part in parts]),
            None if parts[0].labels is None else np.concatenate([part.labels for part in parts]),
            join_risks(parts),
            min((part.promise for part in parts if part.promise is not None), default=None),
            None if parts[0].scores is None else np.concatenate([part.scores for part in parts]),
            None if parts[0].names is None else np.concatenate([part.names for part in parts]),
            min(part.coverage for part in parts),
        )

    def complete_risk(self, classes: int) -> FloatArray:
        """[B] float32: `risk` as it is promised, of a head of `classes` classes, where a plan may have said nothing."""
        return complete_risk(self.risk, (self.normalizer in PROVED_NORMALIZERS) | (self.scored == classes))


def are_equal(one: object, other: object) -> bool:
    """Whether two fields of a result are equal: arrays, texts, numbers or None."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f")
    return not isinstance(one, np.ndarray) and not isinstance(other, np.ndarray) and one == other


def complete_risk(risk: FloatArray | None, is_exact: BoolArray) -> FloatArray:
    """[B] float32: `risk` with 0 where nothing is estimated and no class can be missed. None: nothing is estimated."""
    risk = make_unknown_risk(len(is_exact)) if risk is None else risk
    is_unknown = np.isnan(risk)
    return np.where(is_exact & is_unknown, np.float32(0), risk) if is_unknown.any() else risk


def find_weakest_normalizer(normalizers: list[str]) -> str:
    """The one that holds for the parts of an answer together."""
    return max(normalizers, key=NORMALIZERS.index)


def make_label_array(labels: list[str]) -> Labels:
    """[V + 1] labels as text that UTF-8 can hold; the last one, None, stands for the id -1."""
    printable = [label.encode("utf-8", "replace").decode() for label in labels]
    return np.array([*printable, None], dtype=object)


def read_labels(labels: Labels, ids: IdArray) -> Labels:
    """The labels of ids [...], of `make_label_array`; None of -1, and of ids that were added since the export."""
    texts: Labels = labels[np.minimum(ids, labels.size - 1)]
    return texts


def require_labels(labels: Labels | None, name: str) -> Labels:
    """`labels` themselves; raises BadInput where the model `name` has none."""
    if labels is None:
        raise BadInput(f"{name} was exported without labels: ask for ids alone")
    return labels


@dataclass(slots=True)  # not frozen: that costs a microsecond for each
class PlanResult:
    """A plan's result before normalisation: what sharding and beam search need.

    ids: [B, k] int64, best first. logits: [B, k] float32. log_normalizer: [B] float32, log of the sum of exp(logit)
    over the classes that `TopK.normalizer` names. scored: [B] int32. weights: [B, k] float32, the biases that the order
    takes into account beside the logits; None where there are none. risk: [B] float32, the estimated share of the k
    best permitted classes that are not among the ids; None where the plan estimates none. coverage: the share of the
    classes that were searched: under 1 where shards of a head were lost.
    """

    ids: IdArray
    logits: FloatArray
    log_normalizer: FloatArray
    scored: IntArray
    weights: FloatArray | None = None
    risk: FloatArray | None = None
    coverage: float = 1.0

    def put(self, rows: IdArray | list[int], other: PlanResult) -> None:
        """Replace `rows` [b] by those of `other` [b, k], in place; their risk is NaN where it has none."""
        self.ids[rows], self.logits[rows] = other.ids, other.logits
        self.log_normalizer[rows], self.scored[rows] = other.log_normalizer, other.scored
        if self.risk is None and other.risk is not None:
            self.risk = make_unknown_risk(len(self.ids))
        if self.risk is not None:
            self.risk[rows] = np.nan if other.risk is None else other.risk

    def slice(self, start: int, stop: int, k: int) -> PlanResult:
        """Rows start..stop of a result without weights, and the k best classes of each."""
        return PlanResult(
            self.ids[start:stop, :k],
            self.logits[start:stop, :k],
            self.log_normalizer[start:stop],
            self.scored[start:stop],
            risk=None if self.risk is None else self.risk[start:stop],
            coverage=self.coverage,
        )

    def take(self, rows: IdArray) -> PlanResult:
        """Some rows [b] of a result without weights."""
        risk = None if self.risk is None else self.risk[rows]
        numbers = self.ids[rows], self.logits[rows], self.log_normalizer[rows], self.scored[rows]
        return PlanResult(*numbers, risk=risk, coverage=self.coverage)

    def topk(self, normalizer: str) -> TopK:
        """Normalise: log-probabilities are the logits less each row's log-normalizer."""
        by_row = self.log_normalizer[0] if len(self.ids) == 1 else self.log_normalizer[:, None]  # a scalar is faster
        top = TopK(self.ids, self.logits - by_row, self.scored, normalizer, None, self.risk)
        top.coverage = self.coverage
        return top

    @classmethod
    def concat(cls, parts: list[PlanResult]) -> PlanResult:
        """Concatenate the rows of one or more results of the same k."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.logits for part in parts]),
            np.concatenate([part.log_normalizer for part in parts]),
            np.concatenate([part.scored for part in parts]),
            join_weights(parts),
            join_risks(parts),
            min(part.coverage for part in parts),
        )


def join_risks(parts: Sequence[TopK | PlanResult]) -> FloatArray | None:
    """The risks of the rows of all parts, NaN of a part that has none; None where no part has any."""
    if all(part.risk is None for part in parts):
        return None
    return np.concatenate([make_unknown_risk(len(part.ids)) if part.risk is None else part.risk for part in parts])


def make_unknown_risk(rows: int) -> FloatArray:
    """[rows] float32, all NaN: the risk of rows of which nothing is estimated."""
    return np.full(rows, np.nan, np.float32)


def join_weights(parts: list[PlanResult]) -> FloatArray | None:
    """The weights of the rows of all parts; None where no part has any."""
    if all(part.weights is None for part in parts):
        return None
    return np.concatenate([np.zeros_like(part.logits) if part.weights is None else part.weights for part in parts])


def empty_result(rows: int, k: int) -> PlanResult:
    """Allocate the arrays of a result of `rows` rows, uninitialised."""
    return PlanResult(
        np.empty((rows, k), np.int64),
        np.empty((rows, k), np.float32),
        np.empty(rows, np.float32),
        np.empty(rows, np.int32),
    )
