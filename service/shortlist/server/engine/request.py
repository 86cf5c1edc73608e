"""One request while it is served, and what the service keeps for the model that it asks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shortlist.core.queries import Query, Result
from shortlist.core.results import IntArray, TopK
from shortlist.server.codecs.v2_request import Codec, Template
from shortlist.server.messages.headers import Headers, RawHeaders
from shortlist.server.metrics.recorder import Ledger
from shortlist.server.models import Model
from shortlist.server.scheduling.admission import Admission
from shortlist.server.scheduling.batcher import Batcher
from shortlist.server.scheduling.tasks import Work

if TYPE_CHECKING:
    from .service import Service

MICROSECOND = 1e-6


class Served:
    """What the service keeps for a model: its codec for the head that it has now, its batcher, its statistics."""

    def __init__(self, service: Service, model: Model) -> None:
        """Nothing asked yet."""
        self.service, self.model = service, model
        self.ledger = Ledger(model, service.metrics)
        settings = service.settings
        self.admission = Admission(settings.queue_rows, settings.queue_bytes)
        delay = settings.batch_delay_us * MICROSECOND
        inline = settings.inline_us * MICROSECOND
        self.batcher = Batcher(service.pool, settings.batch_rows, delay, inline, self.computed)
        self.known: Codec | None = None

    @property
    def codec(self) -> Codec:
        """For the head of now; raises NotReady."""
        manifest = self.model.head.manifest
        if self.known is None or self.known.manifest is not manifest:  # the model was loaded again
            self.known = Codec(manifest, self.model.labels, self.service.shared_memory)
        return self.known

    def computed(self, rows: int, requests: int, seconds: float) -> None:
        """A batch was computed."""
        self.admission.answered(rows, seconds)
        self.service.admission.answered(rows, seconds)
        self.ledger.batch(rows, requests, seconds)


@dataclass(slots=True)
class Job:
    """A decoded request. encode: the result -> body and headers. timeout: seconds, 0 for the server's.

    work: the query checked, where a template made it. template: what should learn of the work that is checked now.
    """

    served: Served
    query: Query
    encode: Callable[[Any], tuple[bytes, Headers]]
    timeout: float = 0.0
    priority: int = 0
    work: Work | None = None
    template: Template | None = None


class Call:
    """One request while it is served: which model it turned out to ask, and how long each phase took."""

    served: Served | None = None
    decode = queue = compute = encode = 0.0
    scored: IntArray | None = None
    proved = False
    held_bytes = held_rows = waiting_rows = 0

    def __init__(self, service: Service) -> None:
        """Start the clock."""
        self.service = service
        self.started = time.perf_counter()

    def find(self, name: str, version: int | None) -> Served:
        """The model that is asked; raises NotFound."""
        self.served = self.service.served(self.service.models.find(name, version))
        return self.served

    def hold_bytes(self, length: int) -> None:
        """See Admission.enter."""
        self.service.admission.enter(length, self.held_bytes)
        self.held_bytes += length

    def hold_rows(self, rows: int, limit: float) -> None:
        """See Admission.hold: by the server's bound, and by what the model should manage within `limit` seconds."""
        assert self.served is not None
        self.service.admission.hold(rows, math.inf)
        self.held_rows += rows
        self.served.admission.hold(rows, limit - self.elapsed())
        self.waiting_rows += rows

    def check_rows(self, rows: int, limit: float) -> None:
        """As `hold_rows` and `leave_rows`, for rows that are answered at once."""
        assert self.served is not None
        self.service.admission.check_rows(rows, math.inf)
        self.served.admission.check_rows(rows, limit - self.elapsed())

    def leave_rows(self) -> None:
        """The rows are answered, or will not be."""
        self.service.admission.leave(0, self.held_rows)
        if self.served is not None:
            self.served.admission.leave(0, self.waiting_rows)
        self.held_rows = self.waiting_rows = 0

    def note(self, result: Result) -> None:
        """What the metrics tell of an answer."""
        if isinstance(result, TopK):
            self.scored, self.proved = result.scored, result.normalizer == "bounded"

    @property
    def spent(self) -> tuple[float, ...]:
        """Seconds in each of the metrics' phases."""
        return self.decode, self.queue, self.compute, self.encode

    def elapsed(self) -> float:
        """Seconds since the request came."""
        return time.perf_counter() - self.started


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A question that is answered in front of the router. decode: raises ShortlistError. compresses: both ways."""

    name: str
    decode: Callable[[Call, RawHeaders, bytes], Job]
    compresses: bool = False
