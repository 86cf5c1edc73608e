"""A request's way through the server: read, decode, compute in a thread, encode; timed and counted."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from . import __version__
from .bodies import error_response, read_body
from .errors import NotReady, TooLarge
from .metrics import Metrics
from .models import Model, Models
from .queries import Query
from .runtime import resolve_device
from .settings import Settings

CLIENT_GONE = 499  # nobody reads this answer; the code is for the metrics
CELL_BYTES = 12  # an int64 id and a float32 log-probability


@dataclass(frozen=True, slots=True)
class Job:
    """A decoded request. encode: the result -> body and headers."""

    model: Model
    query: Query
    encode: Callable[[Any], tuple[bytes, dict[str, str]]]


class Call:
    """One request while it is served: which model it turned out to ask, and how long each phase took."""

    def __init__(self, models: Models) -> None:
        """Start the clock."""
        self.models = models
        self.model: Model | None = None
        self.phases: dict[str, float] = {}
        self.started = time.perf_counter()

    def find(self, name: str, version: int | None) -> Model:
        """The model that is asked; raises NotFound."""
        self.model = self.models.find(name, version)
        return self.model

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase, in seconds."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = time.perf_counter() - started


Decode = Callable[[Call, bytes], Job]


class Service:
    """The models of one repository, the threads that compute, and the metrics."""

    def __init__(self, settings: Settings, registry: CollectorRegistry | None = None) -> None:
        """List the repository and check the device; loads nothing yet. Raises NotFound, DeviceError."""
        self.settings = settings
        self.device = resolve_device(settings.device)
        self.models = Models(settings.repository)
        self.metrics = Metrics(__version__, registry)
        self.metrics.ready.set_function(self.is_ready)
        self.draining = False
        self.closing = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models in the background and serve; finish what runs at the end."""
        loading = threading.Thread(target=self.load, name="load")
        self.pool = ThreadPoolExecutor(self.settings.workers, thread_name_prefix="compute")
        loading.start()
        try:
            yield
        finally:
            self.models.stopped.set()
            self.pool.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(loading.join)

    def load(self) -> None:
        """Load every model."""
        self.models.load_all(self.device, self.settings.threads, self.metrics.loaded)

    def check_ready(self) -> None:
        """Raise NotReady with the reason."""
        if self.draining:
            raise NotReady("the server is draining: it finishes what it accepted and stops")
        self.models.check_ready()

    def is_ready(self) -> bool:
        """Whether `check_ready` passes."""
        try:
            self.check_ready()
        except NotReady:
            return False
        return True

    async def answer(self, endpoint: str, request: Request, decode: Decode) -> Response:
        """The response to one request, whatever happens."""
        call = Call(self.models)
        try:
            body = await read_body(request, self.settings.body_limit)
            loop = asyncio.get_running_loop()
            response = await loop.run_in_executor(self.pool, self.work, call, body, decode)
        except ClientDisconnect:
            response = Response(status_code=CLIENT_GONE)
        except Exception as error:
            response = error_response(error)
        self.metrics.request(call.model, endpoint, response.status_code, time.perf_counter() - call.started)
        if self.closing:
            response.headers["Connection"] = "close"
        return response

    def work(self, call: Call, body: bytes, decode: Decode) -> Response:
        """Decode, compute, encode; runs in a thread."""
        with call.phase("decode"):
            job = decode(call, body)
            self.check_limits(job.query)
        with call.phase("compute"):
            result = job.query.answer(job.model.head)
        with call.phase("encode"):
            content, headers = job.encode(result)
        self.metrics.answer(job.model, call.phases, len(job.query.contexts), result)
        return Response(content, headers=headers)

    def check_limits(self, query: Query) -> None:
        """Raise TooLarge for a request that would take too much memory to answer."""
        rows, most = len(query.contexts), self.settings.max_rows
        if rows > most:
            raise TooLarge(f"the request has {rows} rows and this server takes {most}: send fewer in one request")
        size = query.cells * CELL_BYTES
        if size > self.settings.answer_limit:
            raise TooLarge(
                f"the answer would have {size} bytes, over the limit of {self.settings.answer_limit}: "
                "ask for fewer rows or a smaller k"
            )
