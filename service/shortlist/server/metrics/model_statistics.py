"""What `/v2/.../stats` says of a model, in the names that Triton's clients and perf_analyzer read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

NANOSECONDS = 1e9
DURATIONS = ("success", "fail", "queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
NOTED = ("success", "compute_input", "queue", "compute_infer", "compute_output")  # the request, then its phases
OK = 200


class Duration:
    """How often something happened, and how long it took in all, in seconds."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        """Never yet."""
        self.count = 0
        self.seconds = 0.0

    def add(self, times: Sequence[float]) -> None:
        """So many times more, in seconds each."""
        self.count += len(times)
        self.seconds += sum(times)

    def described(self) -> dict[str, int]:
        """In nanoseconds."""
        return {"count": self.count, "ns": round(self.seconds * NANOSECONDS)}


class Statistics:
    """One model version's."""

    def __init__(self) -> None:
        """Nothing asked yet."""
        self.last = 0.0
        self.rows = 0
        self.batches = 0
        self.durations = {name: Duration() for name in DURATIONS}
        self.by_rows: dict[int, Duration] = {}

    def count(self, requests: Sequence[tuple[Any, ...]], batches: Sequence[tuple[int, int, float]]) -> None:
        """Requests and batches as `ledger` notes them."""
        answered = [(seconds, *phases) for _, status, seconds, phases, *_ in requests if status == OK]
        if answered:
            self.last = time.time()
            for name, times in zip(NOTED, zip(*answered, strict=True), strict=True):
                self.durations[name].add(times)
        self.durations["fail"].add([seconds for _, status, seconds, *_ in requests if status != OK])
        by_rows: dict[int, list[float]] = {}
        for rows, _, seconds in batches:
            by_rows.setdefault(rows, []).append(seconds)
        for rows, spent in by_rows.items():
            self.rows += rows * len(spent)
            self.batches += len(spent)
            self.by_rows.setdefault(rows, Duration()).add(spent)

    def described(self, name: str, version: int) -> dict[str, Any]:
        """An entry of `model_stats`; every number is whole, and every name is there."""
        nothing = Duration().described()
        by_rows = [
            {
                "batch_size": rows,
                "compute_input": nothing,
                "compute_infer": spent.described(),
                "compute_output": nothing,
            }
            for rows, spent in sorted(self.by_rows.items())
        ]
        return {
            "name": name,
            "version": str(version),
            "last_inference": round(self.last * 1000),
            "inference_count": self.rows,
            "execution_count": self.batches,
            "inference_stats": {name: spent.described() for name, spent in self.durations.items()},
            "response_stats": {},
            "batch_stats": by_rows,
            "memory_usage": [],
        }
