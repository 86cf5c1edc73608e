"""Plan `certified` of a mixture: exact answers, of which those among the rare classes are proved by bounds.

The frequent classes, a tenth of all, are previewed by each component in int8. All that bounds leave among the best are
scored by all components, bit by bit as exact answers by all components score them. Where there are no previews, or
these leave the frequent classes' part of the normaliser unsure, all frequent classes are scored so.

The rare ones are one layer over the mean of the components: `certified` proves which of them are the best of that
vector, and by how much their part of the normaliser may be off, from rows of 4 bits and of int8. The whole normaliser
is off by no more than the less sure part: the logarithm of a sum grows with its parts by at most as much as theirs.

The frequent part is that of a search for `NORMALIZER_CLASSES`, whatever k, so that proved answers agree. For more, or
under lists, all components score the frequent classes once more.
"""

from __future__ import annotations

import numpy as np

from shortlist.bundle.reader import Bundle
from shortlist.core.bias import Bias
from shortlist.core.draws.sampling import Sampling
from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, BoolArray, DoubleArray, FloatArray, IdArray, PlanResult, empty_result
from shortlist.kernels.mixture import Previewed
from shortlist.plans.common.base import Plan
from shortlist.plans.common.normalizer import cover_classes

from .certified import CertifiedPlan
from .mixture import WholePlan, merge_parts
from .proof import COVER_NATS

NORMALIZER_CLASSES = 16  # frequent classes whose logits are exact in normalisers, and those that may be as good
MOST_FREQUENT_ERROR = 0.05  # nats by which the frequent part of a sum may be off: rows of more are scored exactly


class CertifiedMixture(CertifiedPlan):
    """Proofs among the rare classes, and all components for the rows that they do not decide."""

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open what gives bounds. fallback: the answers by all components."""
        super().__init__(bundle, device, threads, fallback)
        assert isinstance(fallback, WholePlan)
        self.whole, self.front = fallback, fallback.front

    def prove(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> tuple[PlanResult, DoubleArray]:
        previews, errors = self.preview(contexts)
        frequent = self.rank_frequent(contexts, previews, k, class_filter)
        rare, rare_errors = self.proofs.prove(previews.means, k, class_filter)
        if k > NORMALIZER_CLASSES or class_filter.restricts:  # else all of them are in the normaliser
            errors[has_excess(frequent)] = np.inf
        return merge_parts(frequent, rare, k), np.maximum(errors, rare_errors)

    def preview(self, contexts: FloatArray) -> tuple[Previewed, DoubleArray]:
        """What the front says of `contexts` [B, d], and by how many nats the frequent part of sums may be off, [B]."""
        previews = self.front.preview(contexts, NORMALIZER_CLASSES, errors=True)
        errors = np.zeros(len(contexts)) if previews.errors is None else previews.errors
        unsure = (~(errors <= MOST_FREQUENT_ERROR)).nonzero()[0]
        if unsure.size:
            previews.logits[unsure], previews.scored[unsure] = self.front(contexts[unsure])[1], self.front.frequent.size
            errors[unsure] = 0
        return previews, errors

    def rank_frequent(self, contexts: FloatArray, previews: Previewed, k: int, class_filter: ClassFilter) -> PlanResult:
        """The k best permitted frequent classes, exact; their log-normalisers by the previews."""
        is_whole = (previews.scored == self.front.frequent.size).all()
        if is_whole or (k <= NORMALIZER_CLASSES and not class_filter.restricts):
            result = self.whole.rank_frequent(previews.logits, k, class_filter)
            result.scored = previews.scored
            return result
        normalizers = self.whole.rank(previews.logits, 1, self.front.frequent).log_normalizer
        result = self.whole.rank_frequent(self.front(contexts)[1], k, class_filter)
        result.log_normalizer = normalizers
        return result

    def normalize(self, contexts: FloatArray, ids: IdArray) -> tuple[FloatArray, DoubleArray, DoubleArray]:
        previews, frequent_errors = self.preview(contexts)
        frequent = self.whole.rank(previews.logits, 1, self.front.frequent).log_normalizer
        values, errors, slacks = super().normalize(previews.means, self.keep_rare(ids))
        both: FloatArray = np.logaddexp(frequent, values)
        return both, np.maximum(frequent_errors, errors), slacks

    def keep_rare(self, ids: IdArray) -> IdArray:
        """`ids` [B, m] with padding in the place of frequent classes."""
        return np.where((ids >= 0) & self.front.is_rare[np.maximum(ids, 0)], ids, NO_CLASS)

    def sample(
        self, contexts: FloatArray, sampling: Sampling, class_filter: ClassFilter, bias: Bias | None = None
    ) -> PlanResult:
        """Draws [B, draws] from all components' distribution, normalised as proved answers are."""
        if not len(contexts):
            return empty_result(0, sampling.draws)
        result = self.whole.sample(contexts, sampling, class_filter, bias)
        result.log_normalizer = self.compute_log_normalizer(contexts, result.ids, result.logits)
        return result

    def compute_distribution(self, contexts: FloatArray) -> FloatArray:
        """Logits [B, V] of all classes by all components."""
        return self.whole.compute_distribution(contexts)

    def holds(self, context: FloatArray, logits: FloatArray) -> bool:
        """Whether `logits` [V] of a `context` [d] by all components all lie within their bounds."""
        mean, _ = self.front(context[None])
        rare = np.where(self.front.is_rare, logits, np.float32(-np.inf))
        return self.front.holds(context, logits[self.front.frequent]) and self.proofs.holds(mean, rare[None])


def has_excess(frequent: PlanResult) -> BoolArray:
    """Whether the classes [B, k] of each row add up to more than its log-normaliser, by more than rounding; [B]."""
    values = frequent.log_normalizer
    excess = cover_classes(values, frequent.ids, frequent.logits) - values
    return np.asarray(excess > COVER_NATS * np.maximum(1, np.abs(values)))
