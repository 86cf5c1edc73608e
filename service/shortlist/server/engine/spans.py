"""OpenTelemetry spans of requests that compute: one for the whole, and below it decode, queue, compute, encode.

A request is reported once it is over, with the times that the metrics and the access log have, too. Imported only where
spans are switched on. The exporter goes by the standard OTEL_* variables.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode

from shortlist import __version__

from .request import RequestState

FIRST_FAULT_STATUS = 500  # the server's own, which make a span one of an error
NANOSECONDS = 1e9  # in a second
STOP_SECONDS = 2.0  # that the last spans may take to be sent

Phase = tuple[str, float, float]  # name, start and end, by `time.perf_counter`


class RequestSpans:
    """Makes spans of requests that are over and hands them to the exporter, which sends them in a thread of its own."""

    def __init__(self) -> None:
        """Start the exporter; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win over the names given here."""
        resource = Resource.create({}).merge(Resource({"service.name": "shortlist", "service.version": __version__}))
        self.provider = TracerProvider(resource=resource.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.tracer = self.provider.get_tracer("shortlist", __version__)

    def report(self, state: RequestState, status: int, end: float) -> None:
        """Make the spans of a request that was over at `end`, by `time.perf_counter`; those not sampled cost little."""
        zero = time.time_ns() - time.perf_counter_ns()  # nanoseconds since the epoch at which perf_counter was 0
        span = self.tracer.start_span(
            state.endpoint_name, read_parent(state), SpanKind.SERVER, start_time=zero + round(state.start * NANOSECONDS)
        )
        if span.is_recording():
            describe_request(span, state, status)
            context = trace.set_span_in_context(span, Context())
            for name, phase_start, phase_end in list_phases(state, end):
                start_ns, end_ns = (zero + round(seconds * NANOSECONDS) for seconds in (phase_start, phase_end))
                self.tracer.start_span(name, context, start_time=start_ns).end(end_ns)
        span.end(zero + round(end * NANOSECONDS))

    def stop(self) -> None:
        """Send what is left, for as long as a drain has time for that."""
        thread = threading.Thread(target=self.provider.shutdown, daemon=True)
        thread.start()
        thread.join(STOP_SECONDS)


def read_parent(state: RequestState) -> Context:
    """The span that a request says it is part of, by `traceparent` or what OTEL_PROPAGATORS names."""
    headers = {**state.headers, **state.passing_headers()}
    texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
    return propagate.extract(texts, Context())


def describe_request(span: Span, state: RequestState, status: int) -> None:
    """Say what was asked and what came of it: no contexts, no keys."""
    model, task = state.recorder.model, state.task
    if model is not None:
        span.set_attributes({"shortlist.model": model.name, "shortlist.version": model.version})
    if task is not None:
        span.set_attributes({"shortlist.rows": task.rows, "shortlist.k": task.k})
    if state.ids.request:
        span.set_attribute("shortlist.request_id", state.ids.request)
    span.set_attribute("http.response.status_code", status)
    if status >= FIRST_FAULT_STATUS:
        span.set_status(Status(StatusCode.ERROR))


def list_phases(state: RequestState, end: float) -> Iterator[Phase]:
    """The phases that a request came to, one after the other; it was over at `end`."""
    if state.decode_end:
        yield "decode", state.decode_end - state.decode_seconds, state.decode_end
    computation = state.computation
    if computation is not None:
        start = computation.end - computation.seconds
        yield "queue", start - computation.queue_seconds, start
        yield "compute", start, computation.end
        yield "encode", computation.end, end
