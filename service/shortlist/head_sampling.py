"""Draws from a head's exact distribution, which is seldom computed."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy.typing as npt

from shortlist.core.bias import Bias, BiasLike, parse_bias
from shortlist.core.filters import ClassFilter, IdLists
from shortlist.core.results import FloatArray, PlanResult, TopK
from shortlist.core.sampling import parse_sampling
from shortlist.plans.certified import CertifiedPlan
from shortlist.plans.common.base import Plan, sample_by_chunks
from shortlist.plans.common.normalizer import make_topk
from shortlist.plans.common.sampling import draw_from_best

from .head_arguments import HeadArguments


class SampledHead(HeadArguments, ABC):
    """What draws classes by a head's plans."""

    certified: CertifiedPlan | None

    @abstractmethod
    def choose_plan(self, rows: int, k: int, exact: bool, *, proof: bool = True) -> tuple[Plan, str]:
        """The plan for the k best of one request, and its normaliser."""

    @abstractmethod
    def run(
        self, plan: Plan, contexts: FloatArray, k: int, class_filter: ClassFilter, bias: Bias | None = None
    ) -> PlanResult:
        """`plan` over the rows, chunk by chunk."""

    def sample(
        self,
        contexts: npt.ArrayLike,
        seed: npt.ArrayLike,
        position: npt.ArrayLike = 0,
        temperature: npt.ArrayLike = 1.0,
        draws: int = 1,
        *,
        top_k: int | None = None,
        top_p: float | None = None,
        allow: IdLists = None,
        ban: IdLists = None,
        bias: BiasLike = None,
    ) -> TopK:
        """Draws from softmax(logits / temperature) of the dense layer, or of a head that is its own reference.

        contexts: [B, d] float32, finite. seed, position: whole numbers from 0, and temperature: .01 to 100, each one
        for all rows or one a row [B]. draws: of each row, independent of each other. The class that a row draws is a
        function of its context, lists, seed, position and temperature, and of the draw's number: never of other rows,
        threads, or the method, but for scores that are equal within rounding. top_k: from the k best classes alone.
        top_p: from the fewest best classes that have this probability at that temperature. Lists and bias: as in
        `topk`. Returns ids [B, draws], -1 where lists leave no class, with log-probabilities as of `topk(exact=True)`,
        without temperature. Raises BadInput.
        """
        rows = self.check_contexts(contexts)
        sampling = parse_sampling(len(rows), seed, position, temperature, draws, top_k, top_p)
        class_filter, weights = (
            self.check_lists(allow, ban, len(rows)),
            parse_bias(bias, len(rows), self.manifest.classes),
        )
        if top_k is not None:
            k = self.check_k(top_k)
            plan, normalizer = self.choose_plan(len(rows), k, exact=True, proof=weights is None)
            return make_topk(draw_from_best(self.run(plan, rows, k, class_filter, weights), sampling), normalizer)
        plan, normalizer = self.choose_sample_plan(weights)
        return make_topk(sample_by_chunks(plan, rows, sampling, class_filter, weights), normalizer)

    def choose_sample_plan(self, bias: Bias | None) -> tuple[Plan, str]:
        """The plan for draws from all classes; the same for any number of rows, so that no draw depends on that."""
        if self.certified is not None and bias is None:
            return self.certified, "bounded"
        return self.choose_plan(1, 1, exact=True, proof=False)
