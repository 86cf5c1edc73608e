"""What happens to one model, noted in the event loop and counted later: a note costs a third of a microsecond."""

from __future__ import annotations

import time
import weakref
from typing import Protocol

from shortlist.core.results import FloatArray, IntArray, TopK
from shortlist.server.models import Model
from shortlist.server.scheduling.batcher import Computation
from shortlist.server.scheduling.tasks import BeamResult

from .model_statistics import ModelStatistics
from .notes import BatchNote, RequestNote
from .prometheus import Metrics
from .series import ModelSeries

MAX_NOTES = 1024  # before they are counted
COUNTED_RESULTS = (TopK, BeamResult)
UNCOUNTED: tuple[IntArray | None, bool, FloatArray | None] = (
    None,
    False,
    None,
)  # classes scored, proved, risk: of what is no top-k result


class FinishedRequest(Protocol):
    """What is noted of a request, once it is encoded. start: by `time.perf_counter`.

    read_seconds: from then on until its body was whole, which is the client's time and counts for no duration.
    """

    @property
    def endpoint_name(self) -> str:
        """As the table of endpoints has it."""

    start: float
    read_seconds: float
    decode_seconds: float
    computation: Computation | None


class Recorder:
    """Notes of requests and batches; `settle` counts them into metrics and statistics.

    model: None for requests that name no model that is known.
    """

    def __init__(self, model: Model | None, metrics: Metrics) -> None:
        self.model, self.metrics = model, metrics
        self.series: ModelSeries | None = None  # bound at the first note
        self.statistics = ModelStatistics()
        self.requests: list[RequestNote] = []
        self.batches: list[BatchNote] = []
        self.max_notes = MAX_NOTES

    def note_request(self, request: FinishedRequest, status: int) -> None:
        """Note a request that is over, and its batch where it was computed inline."""
        now = time.perf_counter()
        result, compute, queue, compute_end, inline_rows = request.computation or (None, 0.0, 0.0, now, None)
        counted = UNCOUNTED
        if isinstance(result, COUNTED_RESULTS):
            counted = result.scored, result.normalizer == "bounded", result.risk
        phases = request.decode_seconds, queue, compute, now - compute_end
        self.requests.append(
            RequestNote(request.endpoint_name, status, now - request.start - request.read_seconds, phases, *counted)
        )
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
        if requests or batches:
            self.series = self.series or self.bind_series()
            self.series.count(requests, batches)

    def bind_series(self) -> ModelSeries:
        """The model's series, which are shown for as long as somebody may count in them."""
        series = ModelSeries(self.metrics, self.model)
        self.metrics.start_series(series.place)
        weakref.finalize(self, self.metrics.end_series, series.place).atexit = False
        return series
