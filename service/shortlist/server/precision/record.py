"""What came of asking rows of one model version again: counts, figures with intervals, and alarms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shortlist.bundle.manifest import Manifest
from shortlist.evaluation.answers import AnswerFigures
from shortlist.evaluation.sequential import FALSE_ALARM_ROWS, MIN_MISSES, FallDetector, ShareWindow
from shortlist.evaluation.statistics import bound_mean

from .sampler import DEPTHS


def read_promise(manifest: Manifest) -> dict[int, float]:
    """P@k that is promised of a head, by k: what it was made to keep, else what its export measured.

    Of a measured figure it is the lower end of its 95 % interval: what another sample of the same rows could have given
    is no fall.
    """
    depths = [k for k in DEPTHS if k <= manifest.max_k]
    if manifest.promise is not None:
        return dict.fromkeys(depths, manifest.promise)
    if manifest.quality is None:
        return {}
    quality = manifest.quality
    shares = {1: quality.p_at_1, 5: quality.p_at_5} | quality.p_at
    return {k: min(bound_mean(shares[k], quality.rows).low, 1 - MIN_MISSES) for k in depths}


@dataclass
class DepthRecord:
    """The k best of rows. trials: rows. hits: the sum of the shares found. lost: the sum of probabilities not found.

    window: of the figure shown. detector: of the alarm; None where nothing is promised.
    """

    promise: float | None
    detector: FallDetector | None
    trials: int = 0
    hits: float = 0.0
    lost: float = 0.0
    window: ShareWindow = field(default_factory=ShareWindow)

    @property
    def alarm(self) -> bool:
        """Whether the alarm stands."""
        return self.detector is not None and self.detector.stands

    def add(self, hits: float, lost: float) -> bool:
        """Count a row; returns whether it raises an alarm."""
        self.trials, self.hits, self.lost = self.trials + 1, self.hits + hits, self.lost + lost
        self.window.add(hits)
        return self.detector is not None and self.detector.observe(hits)

    def describe(self) -> dict[str, Any]:
        """As `/v1/models` shows it."""
        return {
            "promise": self.promise,
            "precision": self.window.estimate().model_dump(),
            "rows": self.window.rows,
            "trials": self.trials,
            "hits": self.hits,
            "lost_probability": self.lost / max(1, self.trials),
            "alarm": self.alarm,
            "alarms": 0 if self.detector is None else self.detector.alarms,
            "evidence": None if self.detector is None else self.detector.level,
        }


class PrecisionRecord:
    """Of one head. error: the sum over rows of the mean |error| of log-probabilities, nats. max_error: the largest."""

    def __init__(self, manifest: Manifest) -> None:
        promise = read_promise(manifest)
        depths = [k for k in DEPTHS if k <= manifest.max_k]
        self.depths = {k: DepthRecord(promise.get(k), make_detector(promise, k)) for k in depths}
        self.rows, self.error, self.max_error = 0, 0.0, 0.0

    def restart(self) -> None:
        """Show and judge by the rows from now on alone: they are searched otherwise. Counts and alarms stay."""
        for depth in self.depths.values():
            depth.window = ShareWindow()
            if depth.detector is not None:
                depth.detector.restart()

    @property
    def alarm(self) -> bool:
        """Whether the alarm of any k stands."""
        return any(depth.alarm for depth in self.depths.values())

    def add(self, figures: AnswerFigures) -> list[int]:
        """Count rows; returns the k whose alarm they raise."""
        self.rows += len(figures.mean_error)
        self.error += float(figures.mean_error.sum())
        self.max_error = max(self.max_error, float(figures.max_error.max(initial=0)))
        return list(dict.fromkeys(self.add_hits(figures)))

    def add_hits(self, figures: AnswerFigures) -> Iterator[int]:
        """Count the hits of rows; yields the k of each alarm."""
        for k, hits in figures.hits.items():
            rows = np.stack([hits, figures.lost[k]], axis=1).tolist()
            yield from [k for row in rows if self.depths[k].add(*row)]

    def explain(self, alarms: Iterable[int]) -> str:
        """What the alarms of these k say: the figure shown, and the promise. Empty for none."""
        depths = {k: self.depths[k] for k in alarms}
        return ", ".join(
            f"P@{k} is {depth.window.estimate().mean:.4f} on live rows, {depth.promise:.4f} promised"
            for k, depth in depths.items()
        )

    def describe(self) -> dict[str, Any]:
        """As `/v1/models` shows it."""
        return {
            "rows": self.rows,
            "alarm": self.alarm,
            "logprob_error_mean": self.error / max(1, self.rows),
            "logprob_error_max": self.max_error,
            "at": {str(k): depth.describe() for k, depth in self.depths.items()},
        }


def make_detector(promise: dict[int, float], k: int) -> FallDetector | None:
    """The detector of one k, of several that give no more false alarms together than one may alone."""
    return FallDetector(promise[k], FALSE_ALARM_ROWS * len(promise)) if k in promise else None
