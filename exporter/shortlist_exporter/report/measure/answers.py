"""A head's answers to a sample beside the exact ones, and what a class is called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import PlanResult
from shortlist.evaluation.statistics import Share, choose_depths, estimate_precision, mark_hits
from shortlist.evaluation.truth import Truth
from shortlist.head import Head
from shortlist.plans.registry import Plan

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.verify.quality import TRUE_CLASSES

from .samples import Sample


@dataclass(frozen=True)
class Answers:
    """contexts: [n, d]. top: the plan's best `TRUE_CLASSES` of each. truth: exact answers, or None."""

    contexts: FloatArray
    classes: int
    top: PlanResult
    truth: Truth | None

    @property
    def true(self) -> npt.NDArray[np.int64] | None:
        """The exact best ids [n, m]."""
        return None if self.truth is None else self.truth.ids

    def mark_hits(self, k: int) -> npt.NDArray[np.bool_]:
        """[n, k]: whether each of the true k best is among the k that the head returned."""
        assert self.truth is not None
        return mark_hits(self.top.ids, self.truth.best, k)

    def estimate_precision(self) -> dict[int, Share]:
        """P@k by k, with intervals; empty where there is no truth."""
        if self.truth is None:
            return {}
        best = self.truth.best
        return {k: estimate_precision(self.top.ids, best, k) for k in choose_depths(best.ids.shape[1])}

    def measure_errors(self) -> FloatArray | None:
        """[n]: estimated minus exact log-probability, nats, alike for all classes of a row: their logits are exact."""
        if self.truth is None:
            return None
        errors: FloatArray = self.truth.log_normalizer - self.top.log_normalizer
        return errors


def answer_sample(head: Head, plan: Plan, sample: Sample) -> Answers:
    """What `plan` returns for the sample's rows, never by dense for their number."""
    top = head.run(plan, sample.contexts, min(TRUE_CLASSES, head.manifest.max_k), UNRESTRICTED)
    return Answers(sample.contexts, head.manifest.classes, top, sample.truth)


class Namer:
    """A class's printable name, or `#id` where the bundle has no labels."""

    def __init__(self, labels: list[str] | None) -> None:
        self.labels = labels

    def __call__(self, number: int) -> str:
        return self.labels[number] if self.labels and self.labels[number] else f"#{number}"
