"""Processes that answer blocks of calls in turn, so that what slows the machine down meets all of them alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from shortlist.errors import ShortlistError
from shortlist.kernels.native.library import VARIABLE

WORKER = Path(__file__).with_name("worker.py")
WARM_UP_CALLS = 10
ROUNDS = 15
BLOCK_SECONDS = 0.15  # of one process before the next has its turn

Seconds = npt.NDArray[np.float64]


class WorkerFailed(ShortlistError):
    """A process that should have answered has ended."""


@dataclass(frozen=True)
class Contender:
    """Who answers: a Python with the package, a target that is forced on it, or graphs alone.

    package: folders that Python looks into first; none for the package that is installed there.
    """

    bundle: Path
    python: str = sys.executable
    target: str = ""
    graphs: bool = False
    package: str | None = None
    settings: Mapping[str, int] = field(default_factory=dict)

    def list_variables(self) -> dict[str, str]:
        """The environment of its process."""
        others = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", VARIABLE)}
        path = os.environ.get("PYTHONPATH", "") if self.package is None else self.package
        return others | ({"PYTHONPATH": path} if path else {}) | ({VARIABLE: self.target} if self.target else {})


class Worker:
    """One process. loops: what it says that it runs."""

    def __init__(self, contender: Contender, contexts: Path) -> None:
        """Start it and wait until its head is open; raises WorkerFailed."""
        order = {
            "bundle": str(contender.bundle),
            "contexts": str(contexts),
            "settings": dict(contender.settings),
            "graphs": contender.graphs,
        }
        self.process = subprocess.Popen(
            [contender.python, str(WORKER), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=contender.list_variables(),
        )
        self.loops: str = self.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()

    def read(self) -> Any:
        """The next line that it prints; raises WorkerFailed with its last words."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        _, words = self.process.communicate()
        raise WorkerFailed(words.strip().splitlines()[-1] if words.strip() else "it said nothing")

    def time_block(self, first: int, calls: int, batch: int) -> Seconds:
        """Seconds [calls] of calls with `batch` rows each; raises WorkerFailed."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps([first, calls, batch])}\n")
        self.process.stdin.flush()
        return np.array(self.read())


def time_in_turns(workers: Mapping[str, Worker], batch: int) -> dict[str, Seconds]:
    """Seconds of a call [ROUNDS] for each worker: the mean of a block in each round, over the same rows for all."""
    calls, first = {}, WARM_UP_CALLS
    for name, worker in workers.items():
        typical = float(np.median(worker.time_block(0, WARM_UP_CALLS, batch)))
        calls[name] = max(3, int(BLOCK_SECONDS / typical))
    rounds: dict[str, list[float]] = {name: [] for name in workers}
    for _ in range(ROUNDS):
        for name, worker in workers.items():
            rounds[name].append(float(worker.time_block(first, calls[name], batch).mean()))
        first += max(calls.values())
    return {name: np.array(seconds) for name, seconds in rounds.items()}


def compute_ratio(seconds: Mapping[str, Seconds], name: str, reference: str) -> float | None:
    """The time of one over that of another: the median of the rounds' ratios; None where one of them did not run."""
    if name not in seconds or reference not in seconds:
        return None
    return round(float(np.median(seconds[name] / seconds[reference])), 3)
