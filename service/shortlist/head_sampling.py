"""Draws from a head's exact distribution, which is seldom computed."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy.typing as npt

from shortlist.core.bias import Bias, BiasLike, parse_bias
from shortlist.core.draws.sampling import Sampling, parse_sampling
from shortlist.core.filters import ClassFilter, IdLists
from shortlist.core.results import FloatArray, PlanResult, TopK
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
        if sampling.top_k is not None:
            self.check_k(sampling.top_k, "top_k")
        class_filter, weights = (
            self.check_lists(allow, ban, len(rows)),
            parse_bias(bias, len(rows), self.classes),
        )
        return self.draw(rows, sampling, class_filter, weights)

    def draw(self, rows: FloatArray, sampling: Sampling, class_filter: ClassFilter, bias: Bias | None) -> TopK:
        """As `sample`, of checked arguments."""
        plan, normalizer = self.choose_sample_plan(len(rows), sampling.top_k, bias)
        if sampling.top_k is None:
            result = sample_by_chunks(plan, rows, sampling, class_filter, bias)
        else:
            result = draw_from_best(self.run(plan, rows, sampling.top_k, class_filter, bias), sampling)
        return make_topk(result, normalizer)

    def choose_sample_plan(self, rows: int, top_k: int | None, bias: Bias | None) -> tuple[Plan, str]:
        """The plan for draws; of those from all classes the same for any number of rows, so that none depends on it.

        Raises BadInput for a head without exact answers.
        """
        if top_k is not None:
            return self.choose_plan(rows, top_k, exact=True, proof=bias is None)
        if self.certified is not None and bias is None:
            return self.certified, "bounded"
        return self.choose_plan(1, 1, exact=True, proof=False)
