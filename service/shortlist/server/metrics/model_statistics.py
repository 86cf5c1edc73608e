"""What `/v2/.../stats` says of a model, in the names that Triton's clients and perf_analyzer read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from shortlist.core.units import NANOSECONDS_PER_SECOND

from .notes import OK_STATUS, BatchNote, RequestNote

DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
REQUEST_DURATIONS = ("success", "compute_input", "queue", "compute_infer", "compute_output")  # in all, then by phase


class Duration:
    """How often something happened, and how long it took in all, in seconds."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0

    def add(self, times: Sequence[float]) -> None:
        """It happened `len(times)` times more, and took these seconds."""
        self.count += len(times)
        self.seconds += sum(times)

    def describe(self) -> dict[str, int]:
        """The duration as `/v2/.../stats` gives it: how often, and how many nanoseconds in all."""
        return {"count": self.count, "ns": round(self.seconds * NANOSECONDS_PER_SECOND)}


class ModelStatistics:
    """Counts and durations of the requests and batches of one model version, since the server started."""

    def __init__(self) -> None:
        self.last_success = 0.0  # seconds since the epoch
        self.rows = 0
        self.batches = 0
        self.durations = {name: Duration() for name in DURATIONS}
        self.by_batch_rows: dict[int, Duration] = {}

    def count(self, requests: Sequence[RequestNote], batches: Sequence[BatchNote]) -> None:
        successes = [(note.seconds, *note.phases) for note in requests if note.status == OK_STATUS]
        if successes:
            self.last_success = time.time()
            for name, times in zip(REQUEST_DURATIONS, zip(*successes, strict=True), strict=True):
                self.durations[name].add(times)
        self.durations["fail"].add([note.seconds for note in requests if note.status != OK_STATUS])
        seconds_by_rows: dict[int, list[float]] = {}
        for batch in batches:
            seconds_by_rows.setdefault(batch.rows, []).append(batch.seconds)
        for rows, seconds in seconds_by_rows.items():
            self.rows += rows * len(seconds)
            self.batches += len(seconds)
            self.by_batch_rows.setdefault(rows, Duration()).add(seconds)

    def describe(self, name: str, version: int) -> dict[str, Any]:
        """An entry of `model_stats`; every number is whole, and every name is there."""
        nothing = Duration().describe()
        batch_stats = [
            {
                "batch_size": rows,
                "compute_input": nothing,
                "compute_infer": duration.describe(),
                "compute_output": nothing,
            }
            for rows, duration in sorted(self.by_batch_rows.items())
        ]
        return {
            "name": name,
            "version": str(version),
            "last_inference": round(self.last_success * 1000),
            "inference_count": self.rows,
            "execution_count": self.batches,
            "inference_stats": {name: duration.describe() for name, duration in self.durations.items()},
            "response_stats": {},
            "batch_stats": batch_stats,
            "memory_usage": [],
        }
