"""Plan `certified`: exact requests, answered without the dense layer where bounds prove the answer.

What is proved: the k classes returned, and their order, are those of the logits in float64, equal ones by lower id; and
no log-probability is off by more than the certificate's bound.

Let Z_v be what rows.onnx or its loops give for a class, in float32, and z_v the true logit; |Z_v - z_v| is at most a
slack, by `core.rounding`. Hence k classes are at least the k-th largest of Z_v - slack_v, and a class whose upper bound
is under that is not among the best k. Rescored classes whose Z lie within their slacks are ranked in float64.

The loops bound all classes by rows of 4 bits, an eighth of dense's bytes; those that could be among the best, or that
weigh in the normaliser, by int8; and those that are left exactly. The exporter's `graphs.four_bits` and `graphs.bounds`
say why each bound holds. Without loops, bounds.onnx bounds all classes by int8.

The normaliser is a sum over all classes: exact logits of the anchors, the classes of the largest upper bounds, and
estimates of the others. It is a function of the context alone, so proved answers agree whatever k and lists they have.
Where the classes asked for add up to more than it, the estimates were too low, and dense answers: as it does for rows
that the bounds do not decide cheaply, and those whose log-probabilities might be off by more than the bound.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from shortlist.bundle.reader import CERTIFICATE_FILE, Bundle
from shortlist.core.bias import Bias
from shortlist.core.draws.sampling import Sampling
from shortlist.core.filters import UNRESTRICTED, ClassFilter
from shortlist.core.results import DoubleArray, FloatArray, IdArray, PlanResult, empty_result
from shortlist.core.rounding import Rounding
from shortlist.kernels.proofs import ANCHOR_CLASSES, MAX_RESCORED_DIVISOR, CompiledProofs
from shortlist.plans.common.base import Plan, chunk_rows
from shortlist.plans.common.exact_rows import ExactRows
from shortlist.plans.common.normalizer import cover_classes

from .graph_proofs import GraphProofs
from .proof import COVER_NATS, count_first

ESTIMATE_BYTES = 16 << 20  # estimates of one chunk of rows


class Proofs(Protocol):
    """What proves: loops, or a graph and numpy."""

    def prove(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> tuple[PlanResult, DoubleArray]:
        """The k best permitted classes of `contexts` [B, d], and by how many nats log-probabilities may be off, [B]."""

    def normalize(self, contexts: FloatArray) -> tuple[FloatArray, DoubleArray]:
        """Log-normalisers [B] of `contexts` [B, d], as of all proofs, and by how many nats they may be off, [B]."""

    def holds(self, contexts: FloatArray, logits: FloatArray) -> bool:
        """Whether `logits` [B, V], computed in float32 for `contexts` [B, d], all lie within their bounds."""


class CertifiedPlan(Plan):
    """Proofs, and the dense layer for the rows that they do not decide, or not to `tolerance` nats. On CPU alone."""

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open what gives bounds, and exact rows. fallback: the dense head, which must be there."""
        assert fallback is not None
        manifest, self.dense = bundle.manifest, fallback
        self.classes = manifest.classes
        certificate = manifest.certificate  # none while the export still measures
        self.tolerance = math.inf if certificate is None else certificate.logprob_bound
        self.crossover = None if certificate is None else certificate.dense_crossover
        arrays = bundle.tensors(CERTIFICATE_FILE)
        floor = float(arrays["floor"][0])
        self.rounding = Rounding.of_layer(arrays["norms"], floor, manifest.dim, bundle.finishing[1])
        rows = ExactRows(bundle, device, threads)
        loops = CompiledProofs.open(bundle, arrays, self.rounding, rows.loops, threads)
        self.proofs: Proofs = loops or GraphProofs(bundle, arrays["scale"], self.rounding, rows, device, threads)

    def prefers_dense(self, k: int) -> bool:
        return count_first(k, self.classes) > max(ANCHOR_CLASSES, self.classes // MAX_RESCORED_DIVISOR)

    def topk(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best; `scored` is the number of rescored classes, V where dense answered."""
        if not len(contexts):  # ONNX Runtime multiplies no matrices without rows
            return empty_result(0, k)
        result, errors = self.prove(contexts, k, class_filter)
        for row in self.list_undecided(errors):
            some = np.s_[row : row + 1]
            result.put([row], self.dense.topk(contexts[some], k, class_filter.slice_rows(row, row + 1)))
        return result

    def prove(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> tuple[PlanResult, DoubleArray]:
        """The k best of `contexts` [B, d], and by how many nats log-probabilities may be off, [B]; as of `Proofs`."""
        return self.proofs.prove(contexts, k, class_filter)

    def normalize(self, contexts: FloatArray, ids: IdArray) -> tuple[FloatArray, DoubleArray, DoubleArray]:
        """Log-normalisers [B], as of `Proofs`, by how much they may be off, and logits of `ids` [B, m] at most, [B]."""
        rows = zip(contexts, np.maximum(ids, 0), strict=True)
        slacks = [float(self.rounding.measure_slack(*row).max(initial=0)) for row in rows]
        return *self.proofs.normalize(contexts), np.array(slacks)

    def sample(
        self, contexts: FloatArray, sampling: Sampling, class_filter: ClassFilter, bias: Bias | None = None
    ) -> PlanResult:
        """Draws [B, draws], each the class that the dense layer's logits and the same noise would give."""
        is_whole = sampling.top_p == 1 and bias is None  # a nucleus needs all tempered logits
        if not (is_whole and isinstance(self.proofs, CompiledProofs)):
            return self.dense.sample(contexts, sampling, class_filter, bias)
        if not len(contexts):
            return empty_result(0, sampling.draws)
        result, errors = self.proofs.sample(contexts, sampling, class_filter)
        if sampling.draws > 1:
            result.log_normalizer = cover_classes(result.log_normalizer, result.ids, result.logits)
        for row in self.list_undecided(errors):
            some = np.s_[row : row + 1]
            part = sampling.slice_rows(row, row + 1)
            result.put([row], self.dense.sample(contexts[some], part, class_filter.slice_rows(row, row + 1)))
        return result

    def compute_log_normalizer(self, contexts: FloatArray, ids: IdArray, logits: FloatArray) -> FloatArray:
        """As `topk` for any k and lists; dense's where `ids` might be off by more than the tolerance."""
        if not len(contexts):
            return np.empty(0, np.float32)
        values, errors, slacks = self.normalize(contexts, ids)
        excess = cover_classes(values, ids, logits) - values
        errors[excess > COVER_NATS * np.maximum(1, np.abs(values))] = np.inf
        for row in self.list_undecided(errors + 2 * slacks):
            some = np.s_[row : row + 1]
            values[some] = self.dense.compute_log_normalizer(contexts[some], ids[some], logits[some])
        return values

    def list_undecided(self, errors: DoubleArray) -> list[int]:
        """The rows that may be off by more nats than the tolerance, which an export lacks as yet, or by no number."""
        rows: list[int] = (~(np.isfinite(errors) & (errors <= self.tolerance))).nonzero()[0].tolist()
        return rows

    def measure_error(self, context: FloatArray, k: int) -> tuple[float, int]:
        """By how many nats log-probabilities of `context` [d] may be off, and how many classes are rescored for it.

        NaN and 0 where the bounds do not decide the k best classes. For measuring the bounds.
        """
        result, errors = self.prove(context[None], k, UNRESTRICTED)
        return (float(errors[0]), int(result.scored[0])) if np.isfinite(errors[0]) else (math.nan, 0)

    def holds(self, context: FloatArray, logits: FloatArray) -> bool:
        """Whether `logits` [V], computed in float32 for `context` [d], all lie within their bounds."""
        return self.proofs.holds(context[None], logits[None])

    def max_rows(self) -> int:
        return chunk_rows(self.classes, ESTIMATE_BYTES)
