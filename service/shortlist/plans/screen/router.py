"""Which clusters a row opens, by the screen's scores."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shortlist.bundle.settings import ScreenSettings
from shortlist.core.results import FloatArray
from shortlist.runtime.session import Graph

Route = tuple[int, ...]  # clusters that a row opens, best first; none where dense answers the row


class Routing(NamedTuple):
    """Scores [B, r] of the clusters, and the route of each row."""

    scores: FloatArray
    routes: list[Route]


class ClusterRouter:
    """Over screen.onnx: `context` [B, d] -> `scores` [B, r]."""

    def __init__(self, screen: Graph) -> None:
        self.screen = screen

    def route(self, contexts: FloatArray, settings: ScreenSettings, use_dense: bool) -> Routing:
        """The clusters of every row of `contexts` [B, d]. use_dense: whether rows may go to dense."""
        scores: FloatArray = self.screen(context=contexts)[0]
        clusters = scores.shape[1]
        # Margins cost more than the best cluster alone
        uneven = clusters > 1 and (settings.probe_margin or (use_dense and settings.dense_margin))
        if uneven:
            best_two: list[list[float]] = np.partition(scores, clusters - 2, axis=1)[:, :-3:-1].tolist()
            counts = count_clusters(best_two, clusters, settings, use_dense)
        else:
            counts = [min(settings.probes, clusters)] * len(scores)
        routes: list[Route] = [
            (cluster,) if count else () for cluster, count in zip(scores.argmax(axis=1).tolist(), counts, strict=True)
        ]
        for row, count in enumerate(counts):
            if count > 1:
                routes[row] = tuple(np.argsort(-scores[row], kind="stable")[:count].tolist())
        return Routing(scores, routes)


def count_clusters(
    best_scores: list[list[float]], clusters: int, settings: ScreenSettings, use_dense: bool
) -> list[int]:
    """How many of so many `clusters` each row opens, by its one or two best scores, best first; 0 for dense."""
    probes, more = min(settings.probes, clusters), min(settings.probes + 1, clusters)
    probe_margin, dense_margin = settings.probe_margin, settings.dense_margin if use_dense else 0.0
    counts = []
    for two in best_scores:
        margin = math.inf if len(two) == 1 else (two[0] - two[1]) / (abs(two[0]) or 1.0)
        counts.append(0 if margin < dense_margin else more if margin < probe_margin else probes)
    return counts
