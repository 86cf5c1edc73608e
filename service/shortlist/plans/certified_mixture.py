"""Plan `certified` of a mixture: exact answers, of which those among the rare classes are proved by bounds.

The frequent classes, a tenth of all, are scored by all components, as exact answers by all components score them. The
rare ones are one layer over the mean of the components: `certified` proves which of them are the best of that vector,
and by how much their part of the normaliser may be off, from rows of 4 bits and of int8. The whole normaliser is off by
no more: the logarithm of a sum grows with one of its parts by at most as much as the logarithm of that part.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.bias import Bias
from shortlist.core.draws.sampling import Sampling
from shortlist.core.filters import ClassFilter
from shortlist.core.results import NO_CLASS, FloatArray, IdArray, PlanResult, empty_result
from shortlist.plans.common.base import Plan

from .certified import CertifiedPlan
from .mixture import WholePlan, merge_parts

Doubles = npt.NDArray[np.float64]


class CertifiedMixture(CertifiedPlan):
    """Proofs among the rare classes, and all components for the rows that they do not decide."""

    def __init__(self, bundle: Bundle, device: str, threads: int, fallback: Plan | None = None) -> None:
        """Open what gives bounds. fallback: the answers by all components."""
        super().__init__(bundle, device, threads, fallback)
        assert isinstance(fallback, WholePlan)
        self.whole, self.front = fallback, fallback.front

    def prove(self, contexts: FloatArray, k: int, class_filter: ClassFilter) -> tuple[PlanResult, Doubles]:
        mean, logits = self.front(contexts)
        rare, errors = self.proofs.prove(mean, k, class_filter)
        return merge_parts(self.whole.rank_frequent(logits, k, class_filter), rare, k), errors

    def normalize(self, contexts: FloatArray, ids: IdArray) -> tuple[FloatArray, Doubles, Doubles]:
        mean, logits = self.front(contexts)
        frequent = self.whole.rank(logits, 1, self.front.frequent).log_normalizer
        values, errors, slacks = super().normalize(mean, self.keep_rare(ids))
        both: FloatArray = np.logaddexp(frequent, values)
        return both, errors, slacks

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
        """Whether `logits` [V] of the rare classes of a `context` [d] all lie within their bounds."""
        mean, _ = self.front(context[None])
        return self.proofs.holds(mean, np.where(self.front.is_rare, logits, np.float32(-np.inf))[None])
