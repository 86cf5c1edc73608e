"""A single row's way through plan `screen`: the screen and the best cluster by one call, a second by another."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from shortlist.bundle.reader import Bundle
from shortlist.core.results import FloatArray, IdArray, PlanResult
from shortlist.plans.common.base import log_sum_exp
from shortlist.runtime.session import Graph

FUSED = ["best_scores", "best_clusters", "top_logits", "top_index", "log_normalizer"]
SECOND = ["logits", "top_logits", "top_index"]
PAIRS = 8192  # pairs of clusters that are remembered


class SingleRow:
    """Over fused.onnx and any.onnx; the exporter's `screen_graphs` says what is in them."""

    def __init__(self, bundle: Bundle, index: dict[str, Any], device: str, threads: int) -> None:
        """Open the two graphs. index: see ScreenPlan."""
        self.fused, self.any = (Graph(bundle.graph(role), device, threads) for role in ("fused", "any"))
        self.ids: IdArray = index["ids"]
        self.offsets: IdArray = index["offsets"]
        self.tail: FloatArray = index["tail"]
        self.sizes = np.diff(self.offsets).astype(np.int32)
        self.new_classes = lru_cache(maxsize=PAIRS)(self.new_classes_of)

    def best(self, context: FloatArray, k: int) -> tuple[list[float], list[int], PlanResult]:
        """Scores and numbers of the two best clusters of `context` [1, d], and the k best classes of the best one."""
        scores, best, top, index, normalizer = self.fused.run_outputs(FUSED, {"context": context, "k": np.array([k])})
        clusters: list[int] = best[0].tolist()
        first = clusters[0]
        own = slice(first, first + 1)
        result = PlanResult(self.ids[index + self.offsets[first]], top, normalizer + self.tail[own], self.sizes[own])
        return scores[0].tolist(), clusters, result

    def widened(self, context: FloatArray, clusters: list[int], first: PlanResult) -> PlanResult:
        """The answer over the two best clusters, from that over the best one.

        Equals scoring the union of their sets, but by one more call of a warm session.
        """
        cluster, other = clusters
        top_k = first.ids.shape[1]
        logits, top, index = self.cluster(other, SECOND, {"context": context, "k": np.array([top_k])})
        new = self.new_classes(cluster, other)
        kept = new[index[0]]
        ids = np.concatenate([first.ids[0], self.ids[self.offsets[other] + index[0, kept]]])
        found = np.concatenate([first.logits[0], top[0, kept]])
        order = np.lexsort((ids, -found))[:top_k]
        inside = first.log_normalizer - self.tail[cluster]
        normalizer = np.logaddexp(inside, log_sum_exp(logits[0, new])) + self.tail[cluster] if new.any() else None
        return PlanResult(
            ids[None, order],
            found[None, order],
            first.log_normalizer if normalizer is None else normalizer,
            first.scored + np.int32(np.count_nonzero(new)),
        )

    def cluster(self, cluster: int, outputs: list[str], inputs: dict[str, Any]) -> list[Any]:
        """Outputs of one cluster."""
        first, last = self.offsets[cluster : cluster + 1], self.offsets[cluster + 1 : cluster + 2]
        return self.any.run_outputs(outputs, inputs | {"first": first, "last": last})

    def new_classes_of(self, first: int, second: int) -> npt.NDArray[np.bool_]:
        """Which classes of the second cluster's set are not in the first's."""
        return np.isin(self.set(second), self.set(first), assume_unique=True, invert=True)

    def set(self, cluster: int) -> IdArray:
        """Ascending ids of one cluster."""
        return self.ids[self.offsets[cluster] : self.offsets[cluster + 1]]
