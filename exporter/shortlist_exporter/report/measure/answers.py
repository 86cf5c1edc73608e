"""A head's answers to a sample beside the exact ones, and what a class is called."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from shortlist.core.filters import UNRESTRICTED
from shortlist.core.results import PlanResult
from shortlist.evaluation.measurement import DEPTHS
from shortlist.evaluation.statistics import Share, share
from shortlist.head import Head
from shortlist.plans.registry import Plan

from shortlist_exporter.core.types import FloatArray
from shortlist_exporter.verify.quality import DEPTH, Truth

from .samples import Sample


@dataclass(frozen=True)
class Answers:
    """contexts: [n, d]. top: the plan's best `DEPTH` of each. truth: exact answers, or None."""

    contexts: FloatArray
    classes: int
    top: PlanResult
    truth: Truth | None

    @property
    def true(self) -> npt.NDArray[np.int64] | None:
        """The exact best ids [n, m]."""
        return None if self.truth is None else self.truth.ids

    def hits(self, k: int) -> npt.NDArray[np.bool_]:
        """[n, k]: whether each of the true k best is among the k that the head returned."""
        assert self.true is not None
        k = min(k, self.true.shape[1])
        found: npt.NDArray[np.bool_] = (self.true[:, :k, None] == self.top.ids[:, None, :k]).any(axis=2)
        return found

    def precision(self) -> dict[int, Share]:
        """P@k by k, with intervals; empty where there is no truth."""
        if self.true is None:
            return {}
        depth = self.true.shape[1]
        return {k: share(self.hits(k).mean(axis=1)) for k in DEPTHS if k <= depth}

    def errors(self) -> FloatArray | None:
        """[n]: estimated minus exact log-probability, nats, alike for all classes of a row: their logits are exact."""
        if self.truth is None:
            return None
        found: FloatArray = self.truth.log_normalizer - self.top.log_normalizer
        return found


def ask(head: Head, plan: Plan, sample: Sample) -> Answers:
    """What `plan` answers to the sample's rows, never by dense for their number."""
    top = head.run(plan, sample.contexts, min(DEPTH, head.manifest.max_k), UNRESTRICTED)
    return Answers(sample.contexts, head.manifest.classes, top, sample.truth)


class Namer:
    """A class's printable name, or `#id` where the bundle has no labels."""

    def __init__(self, labels: list[str] | None) -> None:
        self.labels = labels

    def __call__(self, number: int) -> str:
        """Name of one class."""
        return self.labels[number] if self.labels and self.labels[number] else f"#{number}"
