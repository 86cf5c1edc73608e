"""The series of one model version, bound once, in which its requests are counted many at a time."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from functools import partial

import numpy as np
from prometheus_client import Counter

from shortlist.core.results import FloatArray, IntArray
from shortlist.server.models import Model

from .notes import OK_STATUS, BatchNote, RequestNote
from .prometheus import PHASES, Metrics, Place

UNKNOWN_MODEL = ("unknown", "unknown")  # names that clients invent must not become label values


class ModelSeries:
    """All series of one model version; of requests alone where the model is None, for those that name no model."""

    def __init__(self, metrics: Metrics, model: Model | None) -> None:
        self.place: Place = UNKNOWN_MODEL if model is None else (model.name, str(model.version))
        self.requests = RequestSeries(metrics, self.place)
        self.results = None if model is None else ResultSeries(metrics, model)

    def count(self, requests: Sequence[RequestNote], batches: Sequence[BatchNote]) -> None:
        """Count requests that are over, and rows that were computed together."""
        self.requests.count(requests)
        if self.results is not None:
            self.results.count(requests, batches)


class RequestSeries:
    """The series of requests to one model version, bound beforehand; a status code is bound when it first comes.

    So is an endpoint that is not one of the metrics' `endpoint_names`.
    """

    def __init__(self, metrics: Metrics, place: Place) -> None:
        self.bind_duration = partial(metrics.duration.labels, *place)
        self.duration = {endpoint: self.bind_duration(endpoint) for endpoint in metrics.endpoint_names}
        self.bind = partial(metrics.requests.labels, *place)
        self.codes: dict[tuple[str, int], Counter] = {}

    def count(self, notes: Sequence[RequestNote]) -> None:
        """Count requests that are over."""
        for (endpoint, code), times in collections.Counter((note.endpoint, note.status) for note in notes).items():
            if (endpoint, code) not in self.codes:
                self.codes[endpoint, code] = self.bind(endpoint, str(code))
            self.codes[endpoint, code].inc(times)
        for endpoint in {note.endpoint for note in notes}:
            if endpoint not in self.duration:
                self.duration[endpoint] = self.bind_duration(endpoint)
            seconds = np.array([note.seconds for note in notes if note.endpoint == endpoint])
            self.duration[endpoint].observe_all(seconds)


class ResultSeries:
    """The series of one model version's results, bound beforehand."""

    def __init__(self, metrics: Metrics, model: Model) -> None:
        place = (model.name, str(model.version))
        self.model = model
        self.phases = [metrics.phases.labels(*place, phase) for phase in PHASES]
        self.batch_rows = metrics.batch_rows.labels(*place)
        self.batch_requests = metrics.batch_requests.labels(*place)
        self.by_head = metrics.rows.labels(*place, "head")
        self.by_dense = metrics.rows.labels(*place, "dense")
        self.proved = metrics.rows.labels(*place, "proved")
        self.scored = metrics.scored.labels(*place)
        self.rescored = metrics.rescored.labels(*place)
        self.bind_risk = partial(metrics.risk.labels, *place)  # a head that estimates none has no series

    def count(self, requests: Sequence[RequestNote], batches: Sequence[BatchNote]) -> None:
        """Count requests that are over, and rows that were computed together."""
        successes = [note for note in requests if note.status == OK_STATUS]
        if successes:
            self.count_phases([note.phases for note in successes])
            self.count_scored([note.scored for note in successes if note.scored is not None and not note.proved])
            self.count_proved([note.scored for note in successes if note.scored is not None and note.proved])
            self.count_risks([note.risk for note in successes if note.risk is not None])
        if batches:
            self.count_batches(batches)

    def count_phases(self, phases: Sequence[tuple[float, ...]]) -> None:
        """Count requests by the seconds that each spent in each of `PHASES`."""
        for series, seconds in zip(self.phases, zip(*phases, strict=True), strict=True):
            series.observe_all(np.array(seconds))

    def count_scored(self, scored: Sequence[IntArray]) -> None:
        """Count rows by the classes scored [B] of each top-k result that was not proved by bounds."""
        if not scored:
            return
        rows = np.concatenate(scored)
        dense = int(np.count_nonzero(rows == self.model.dense_row_candidates))
        self.by_dense.inc(dense)
        self.by_head.inc(len(rows) - dense)
        self.scored.observe_all(rows)

    def count_proved(self, scored: Sequence[IntArray]) -> None:
        """Count rows of results whose normalizer is `bounded`: a row that is not proved was computed by dense."""
        if not scored:
            return
        rows = np.concatenate(scored)
        proof_rows = rows[rows < self.model.classes]
        self.by_dense.inc(len(rows) - len(proof_rows))
        self.proved.inc(len(proof_rows))
        self.scored.observe_all(rows)
        self.rescored.observe_all(proof_rows)

    def count_risks(self, risks: Sequence[FloatArray]) -> None:
        """Count rows by the risks [B] of each top-k result whose plan estimates them."""
        known = [risk[~np.isnan(risk)] for risk in risks]
        if any(map(len, known)):
            self.bind_risk().observe_all(np.concatenate(known))

    def count_batches(self, notes: Sequence[BatchNote]) -> None:
        """Count rows that were computed together, and the requests that they came from."""
        self.batch_rows.observe_all(np.array([note.rows for note in notes]))
        self.batch_requests.observe_all(np.array([note.requests for note in notes]))
