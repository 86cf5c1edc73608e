"""What happened to one model, noted in the event loop and counted later: a note costs a third of a microsecond."""

from __future__ import annotations

from shortlist.core.results import IntArray
from shortlist.server.models import Model

from .model_statistics import Statistics
from .prometheus import Metrics

OK = 200
MOST = 1024  # notes before they are counted

# Endpoint, status, seconds in all, seconds in each of the metrics' phases, classes scored of a top-k answer, and
# whether it was proved by bounds.
Note = tuple[str, int, float, tuple[float, ...], IntArray | None, bool]


class Ledger:
    """Notes of requests and batches; `settle` counts them into metrics and statistics."""

    def __init__(self, model: Model, metrics: Metrics) -> None:
        """Nothing noted yet."""
        self.model, self.metrics = model, metrics
        self.statistics = Statistics()
        self.requests: list[Note] = []
        self.batches: list[tuple[int, int, float]] = []

    def request(self, note: Note) -> None:
        """A request that is over."""
        self.requests.append(note)
        if len(self.requests) >= MOST:
            self.settle()

    def batch(self, rows: int, requests: int, seconds: float) -> None:
        """Rows that were computed together."""
        self.batches.append((rows, requests, seconds))
        if len(self.batches) >= MOST:
            self.settle()

    def settle(self) -> None:
        """Count what is noted."""
        requests, self.requests = self.requests, []
        batches, self.batches = self.batches, []
        self.metrics.requests_of(self.model).count([note[:3] for note in requests])
        answered = [note for note in requests if note[1] == OK]
        if answered:
            spent = [note[3] for note in answered]
            scored, proved = (
                [note[4] for note in answered if note[4] is not None and note[5] is by] for by in (False, True)
            )
            self.metrics.answers_of(self.model).count(spent, scored, proved)
        if batches:
            self.metrics.answers_of(self.model).count_batches(batches)
        self.statistics.count(requests, batches)
