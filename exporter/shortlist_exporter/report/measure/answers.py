"""A head's answers to a sample beside the exact ones, and what a class is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import PlanResult
from shortlist.evaluation.statistics import PRECISION_DEPTHS, Share, choose_depths, estimate_share, mark_hits
from shortlist.evaluation.truth import Truth
from shortlist.head import Head
from shortlist.plans.registry import Plan

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.verify.quality import TRUE_CLASSES

from .samples import Sample


@dataclass(frozen=True)
class Answers:
    """A sample's contexts [n, d] with what the plan answers requests for k classes, by k, and exact answers, or None.

    depths: each k beside the usual ones whose P@k is measured.
    """

    contexts: FloatArray
    classes: int
    tops: Mapping[int, PlanResult]
    truth: Truth | None
    depths: tuple[int, ...] = ()

    @property
    def top(self) -> PlanResult:
        """What the plan answers to the request for `TRUE_CLASSES`, or for as many as it serves."""
        return self.tops[min(TRUE_CLASSES, max(self.tops))]

    @property
    def true(self) -> npt.NDArray[np.int64] | None:
        """The exact best ids [n, m]."""
        return None if self.truth is None else self.truth.ids

    def first_rows(self, rows: int) -> Answers:
        """The answers to the first `rows` contexts."""
        tops = {k: top.slice(0, rows, k) for k, top in self.tops.items()}
        truth = None if self.truth is None else self.truth.first_rows(rows)
        return replace(self, contexts=self.contexts[:rows], tops=tops, truth=truth)

    def mark_hits(self, k: int) -> npt.NDArray[np.bool_]:
        """[n, k]: whether each of the true k best is among those that a request for k returned."""
        assert self.truth is not None
        return mark_hits(self.tops[min(k, max(self.tops))].ids, self.truth.best, k)

    def find_best_first(self) -> npt.NDArray[np.bool_]:
        """[n]: whether the best class came first of the most, whose log-probabilities are measured."""
        assert self.truth is not None
        return mark_hits(self.top.ids, self.truth.best, 1)[:, 0]

    def estimate_precision(self, documents: npt.NDArray[np.int32] | None = None) -> dict[int, Share]:
        """P@k by k, with intervals over `documents` [n], each row's; empty where there is no truth."""
        if self.truth is None:
            return {}
        depths = [k for k in {*PRECISION_DEPTHS, *self.depths} if k <= self.truth.ids.shape[1]]
        return {k: estimate_share(self.mark_hits(k).mean(axis=1), documents) for k in sorted(depths)}

    def measure_errors(self) -> FloatArray | None:
        """[n]: estimated minus exact log-probability, nats, alike for all classes of a row: their logits are exact."""
        if self.truth is None:
            return None
        errors: FloatArray = self.truth.log_normalizer - self.top.log_normalizer
        return errors


def answer_sample(head: Head, plan: Plan, sample: Sample) -> Answers:
    """What `plan` returns for the sample's rows, never by dense for their number."""
    most = min(TRUE_CLASSES, head.manifest.max_k)
    depths = {*choose_depths(most), most, *sample.depths}
    tops = {k: head.run(plan, sample.contexts, k, UNRESTRICTED) for k in depths}
    return Answers(sample.contexts, head.manifest.classes, tops, sample.truth, sample.depths)


class Namer:
    """A class's printable name, or `#id` where the bundle has no labels."""

    def __init__(self, labels: list[str] | None) -> None:
        self.labels = labels

    def __call__(self, number: int) -> str:
        return self.labels[number] if self.labels and self.labels[number] else f"#{number}"
