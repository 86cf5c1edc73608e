"""What happens to one model, noted in the event loop and counted later: a note costs a third of a microsecond."""

from __future__ import annotations

import time
from typing import Protocol

from shortlist.core.results import FloatArray, IntArray, TopK
from shortlist.server.models import Model
from shortlist.server.scheduling.batcher import Computation
from shortlist.server.scheduling.tasks import BeamResult

from .model_statistics import ModelStatistics
from .notes import OK_STATUS, BatchNote, RequestNote
from .prometheus import Metrics

MAX_NOTES = 1024  # before they are counted
UNCOUNTED: tuple[IntArray | None, bool, FloatArray | None] = (
    None,
    False,
    None,
)  # classes scored, proved, risk: of what is no top-k result


class FinishedRequest(Protocol):
    """What is noted of a request, once it is encoded. start: by `time.perf_counter`."""

    @property
    def endpoint_name(self) -> str:
        """As the table of endpoints has it."""

    start: float
    decode_seconds: float
    computation: Computation | None


class Recorder:
    """Notes of requests and batches; `settle` counts them into metrics and statistics.

    model: None for requests that name no model that is known.
    """

    def __init__(self, model: Model | None, metrics: Metrics) -> None:
        self.model, self.metrics = model, metrics
        self.statistics = ModelStatistics()
        self.requests: list[RequestNote] = []
        self.batches: list[BatchNote] = []
        self.max_notes = MAX_NOTES

    def note_request(self, request: FinishedRequest, status: int) -> None:
        """Note a request that is over, and its batch where it was computed inline."""
        now = time.perf_counter()
        result, compute, queue, compute_end, inline_rows = request.computation or (None, 0.0, 0.0, now, None)
        counted = UNCOUNTED
        if isinstance(result, TopK | BeamResult):
            counted = result.scored, result.normalizer == "bounded", result.risk
        phases = request.decode_seconds, queue, compute, now - compute_end
        self.requests.append(RequestNote(request.endpoint_name, status, now - request.start, phases, *counted))
        if inline_rows is not None:
            self.batches.append(BatchNote(inline_rows, 1, compute))
        if len(self.requests) >= self.max_notes:
            self.settle()

    def note_batch(self, rows: int, requests: int, seconds: float) -> None:
        """Note rows that were computed together."""
        self.batches.append(BatchNote(rows, requests, seconds))
        if len(self.batches) >= self.max_notes:
            self.settle()

    def retire(self) -> None:
        """Count what is noted, and every later note at once: nobody calls `settle` any more."""
        self.max_notes = 1
        self.settle()

    def settle(self) -> None:
        """Count all requests and batches that were noted, in the statistics and in the metrics."""
        requests, self.requests = self.requests, []
        batches, self.batches = self.batches, []
        self.statistics.count(requests, batches)
        if self.model is None:
            if requests:
                self.metrics.request_series(None).count(requests)
            return
        self.metrics.request_series(self.model).count(requests)
        series = self.metrics.result_series(self.model)
        successes = [note for note in requests if note.status == OK_STATUS]
        if successes:
            series.count_phases([note.phases for note in successes])
            series.count_scored([note.scored for note in successes if note.scored is not None and not note.proved])
            series.count_proved([note.scored for note in successes if note.scored is not None and note.proved])
            series.count_risks([note.risk for note in successes if note.risk is not None])
        if batches:
            series.count_batches(batches)
