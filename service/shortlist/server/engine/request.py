"""One request while it is served."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shortlist.server.messages.headers import EncodedResponse, RawHeaders
from shortlist.server.messages.request_ids import RequestIds, read_request_ids
from shortlist.server.metrics.recorder import Recorder
from shortlist.server.scheduling.batcher import Computation
from shortlist.server.scheduling.slices import Task

from .served_model import ServedModel


@dataclass(slots=True)
class DecodedRequest:
    """A request that was read and checked. timeout: seconds, 0 for the server's own. priority: lower goes first."""

    served_model: ServedModel
    task: Task
    encode: Callable[[Any], EncodedResponse]
    timeout: float = 0.0
    priority: int = 0


@dataclass(slots=True)
class RequestState:
    """What is known of a request so far; times in seconds.

    path: the parameters of its path. recorder: of the model, once that is found. client: who asks, as the service
    names it. start, deadline, decode_end: by `time.perf_counter`. task: once it is decoded. computation: once it is
    computed; what it took to encode is the time from then on. read_seconds: from the start until the body was whole.
    passing_headers: what `headers` leave out because it differs in every request.
    """

    endpoint_name: str
    path: Mapping[str, str]
    headers: RawHeaders
    recorder: Recorder
    client: str
    start: float = field(default_factory=time.perf_counter)
    deadline: float = 0.0
    read_seconds: float = 0.0
    decode_seconds: float = 0.0
    decode_end: float = 0.0
    task: Task | None = None
    computation: Computation | None = None
    passing_headers: Callable[[], RawHeaders] = dict

    @property
    def ids(self) -> RequestIds:
        """What the client or a proxy calls the request; looked up for errors and the access log alone."""
        return read_request_ids({**self.headers, **self.passing_headers()})
