"""A request's way through the server: admit, read, decode, compute, encode; timed and counted.

Everything here runs in the event loop but the computing of batches and the coding of large bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from shortlist import __version__
from shortlist.core.queries import Query, Result
from shortlist.errors import NotReady, SlowBody, TimedOut, TooLarge
from shortlist.runtime.devices import resolve_device
from shortlist.server.codecs.shared_memory import SharedMemory
from shortlist.server.messages.body import read
from shortlist.server.messages.compression import IDENTITY, LEAST, chosen, compressed, decompressed
from shortlist.server.messages.headers import CONTENT_LENGTH, Headers, RawHeaders, announced
from shortlist.server.messages.responses import failed, with_length
from shortlist.server.metrics.prometheus import Metrics
from shortlist.server.metrics.triton import TritonMetrics
from shortlist.server.models import Model, Models
from shortlist.server.scheduling.admission import Admission
from shortlist.server.scheduling.tasks import Work, checked_work
from shortlist.server.settings import Settings

from .live_settings import LogSettings, TraceSettings
from .request import Call, Endpoint, Job, Served

VARY = (b"vary", b"accept-encoding")
CLIENT_GONE = 499  # nobody reads this answer; the code is for the metrics
OK = 200
CELL_BYTES = 12  # an int64 id and a float32 log-probability
SMALL = 64 << 10  # bytes; larger bodies are coded in a thread
SWEEP = 1.0  # seconds between looks for bodies that do not come


class Service:
    """The models of one repository, the threads that compute, and the metrics."""

    def __init__(self, settings: Settings, registry: CollectorRegistry | None = None) -> None:
        """List the repository and check the device; loads nothing yet. Raises NotFound, DeviceError."""
        self.settings = settings
        self.device = resolve_device(settings.device)
        self.models = Models(settings.repository)
        self.admission = Admission(settings.queue_rows, settings.queue_bytes)
        self.shared_memory = SharedMemory(settings.body_limit) if settings.shared_memory else None
        self.log_settings, self.trace_settings = LogSettings(), TraceSettings()
        self.metrics = Metrics(__version__, registry)
        self.metrics.ready.set_function(self.is_ready)
        self.metrics.held_rows.set_function(lambda: self.admission.rows)
        self.metrics.held_bytes.set_function(lambda: self.admission.bytes)
        self.all_served: dict[Model, Served] = {}
        if settings.triton_metrics:
            TritonMetrics(lambda: [served.ledger for served in list(self.all_served.values())], self.metrics.registry)
        self.reading: dict[asyncio.Task[Any], float] = {}
        self.loading = asyncio.Lock()  # one load or unload at a time, and the others wait without a thread
        self.draining = False
        self.closing = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models in the background and serve; finish what runs at the end."""
        loading = threading.Thread(target=self.load, name="load")
        self.pool = ThreadPoolExecutor(self.settings.workers, thread_name_prefix="compute")
        sweeping = asyncio.create_task(self.sweep())
        loading.start()
        try:
            yield
        finally:
            sweeping.cancel()
            self.models.stopped.set()
            self.pool.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(loading.join)

    def load(self) -> None:
        """Load every model."""
        self.models.load_all(self.device, self.settings.threads, self.metrics.loaded)

    def served(self, model: Model) -> Served:
        """What is kept for a model."""
        found = self.all_served.get(model)
        return self.all_served.setdefault(model, Served(self, model)) if found is None else found  # threads ask too

    def forget(self, model: Model) -> None:
        """Let go of what belongs to the head of an unloaded model."""
        found = self.all_served.get(model)
        if found is not None:
            found.known = None
            found.batcher.row_seconds.clear()

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

    async def answer(self, endpoint: Endpoint, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whatever happens."""
        call = Call(self)
        try:
            content, headers = await self.answered(endpoint, call, dict(scope["headers"]), scope, receive)
            status = OK
        except ClientDisconnect:
            status, content, headers = CLIENT_GONE, b"", []
        except Exception as error:
            status, content, headers = failed(error)
        finally:
            call.leave_rows()
        self.count(call, endpoint, status)
        headers = with_length(headers, content)
        if self.closing:
            headers = [*headers, (b"connection", b"close")]
        self.admission.bytes += len(content)  # held until the client has read it
        try:
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": content})
        finally:
            self.admission.leave(call.held_bytes + len(content), 0)

    def count(self, call: Call, endpoint: Endpoint, status: int) -> None:
        """Note a request that is over."""
        if call.served is None:
            self.metrics.requests_of(None).count([(endpoint.name, status, call.elapsed())])
        else:
            call.served.ledger.request((endpoint.name, status, call.elapsed(), call.spent, call.scored, call.proved))

    def settle(self) -> None:
        """Count all that is noted."""
        for served in list(self.all_served.values()):
            served.ledger.settle()

    async def answered(
        self, endpoint: Endpoint, call: Call, headers: RawHeaders, scope: Scope, receive: Receive
    ) -> tuple[bytes, Headers]:
        """The answer's body and headers; raises what the request failed by."""
        body = await self.body_of(call, headers, receive)
        started = time.perf_counter()
        if endpoint.compresses and (encoding := headers.get(b"content-encoding")):
            body = await asyncio.to_thread(decompressed, body, encoding.decode("latin-1"), self.settings.body_limit)
            call.hold_bytes(len(body))
        if len(body) <= SMALL:
            job, work = self.decoded(endpoint, call, headers, body)
        else:
            job, work = await asyncio.to_thread(self.decoded, endpoint, call, headers, body)
        limit = self.limit_of(call, job)
        call.hold_rows(work.rows, limit)
        call.decode = time.perf_counter() - started
        result = await self.computed(call, job, work, limit, scope, receive)
        started = time.perf_counter()
        if work.cells * CELL_BYTES <= SMALL:
            content, out = self.encoded(endpoint, headers, job, result)
        else:
            content, out = await asyncio.to_thread(self.encoded, endpoint, headers, job, result)
        call.encode = time.perf_counter() - started
        call.note(result)
        return content, out

    def limit_of(self, call: Call, job: Job) -> float:
        """Seconds that the request may take; raises TimedOut where they are over."""
        limit = job.timeout or self.settings.request_timeout
        if call.elapsed() > limit:
            raise TimedOut("the request's time was over before it was computed: allow more, or ask for less")
        return limit

    async def body_of(self, call: Call, headers: RawHeaders, receive: Receive) -> bytes:
        """The body, if there is room for it; raises Overloaded, TooLarge, SlowBody, ClientDisconnect."""
        limit = self.settings.body_limit
        self.admission.check(announced(headers, limit))
        task = asyncio.current_task()
        assert task is not None
        self.reading[task] = call.started
        try:
            return await read(receive, limit, call.hold_bytes)
        except asyncio.CancelledError:
            if task.uncancel() or call.elapsed() < self.settings.body_timeout:
                raise
            raise SlowBody.after(self.settings.body_timeout) from None
        finally:
            del self.reading[task]

    async def sweep(self) -> None:
        """Give up bodies that do not come."""
        while True:
            await asyncio.sleep(min(SWEEP, self.settings.body_timeout))
            late = time.perf_counter() - self.settings.body_timeout
            for task in [task for task, started in self.reading.items() if started <= late]:
                task.cancel()

    def decoded(self, endpoint: Endpoint, call: Call, headers: RawHeaders, body: bytes) -> tuple[Job, Work]:
        """The request, checked; raises ShortlistError."""
        job = endpoint.decode(call, headers, body)
        if job.work is None:
            self.check_limits(job.query)
            job.work = checked_work(job.served.model.head, job.query)
            if job.template is not None:
                job.template.learn(job.work)
        return job, job.work

    def check_limits(self, query: Query) -> None:
        """Raise TooLarge for a request that would take too much memory to answer."""
        rows, most = len(query.contexts), self.settings.max_rows
        if rows > most:
            raise TooLarge(f"the request has {rows} rows and this server takes {most}: send fewer in one request")
        size = query.result_size * CELL_BYTES
        if size > self.settings.answer_limit:
            raise TooLarge(
                f"the answer would have {size} bytes, over the limit of {self.settings.answer_limit}: "
                "ask for fewer rows or a smaller k"
            )

    async def computed(self, call: Call, job: Job, work: Work, limit: float, scope: Scope, receive: Receive) -> Result:
        """The result: at once where the work is small and nothing else runs, else in its turn."""
        batcher = job.served.batcher
        started = time.perf_counter()
        if work.rows == 0 or batcher.at_once(work):
            result = batcher.answer_now(work)
            call.compute = time.perf_counter() - started
            return result
        client = scope.get("client") or ("", 0)
        waiting = batcher.submit(work, str(client[0]), job.priority)
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(0.0, limit - call.elapsed()), batcher.expire, waiting)
        gone = asyncio.ensure_future(receive())  # after the body, all that can come is that the client leaves
        gone.add_done_callback(partial(left, batcher.drop, waiting))
        try:
            result = await waiting.future
        except asyncio.CancelledError:  # the server stops
            batcher.drop(waiting)
            raise
        finally:
            timer.cancel()
            gone.cancel()
        done = time.perf_counter()
        call.queue, call.compute = waiting.started - started, done - waiting.started
        return result

    def encoded(self, endpoint: Endpoint, headers: RawHeaders, job: Job, result: Result) -> tuple[bytes, Headers]:
        """The answer's body and headers, compressed where that is asked for and pays."""
        content, out = job.encode(result)
        if endpoint.compresses and len(content) > LEAST and (accept := headers.get(b"accept-encoding")):
            encoding = chosen(accept.decode("latin-1"))
            if encoding != IDENTITY:
                plain = [header for header in out if header[0] != CONTENT_LENGTH]
                return compressed(content, encoding), [*plain, (b"content-encoding", encoding.encode()), VARY]
        return content, out


def left(drop: Callable[[Any, Exception], None], waiting: Any, gone: asyncio.Future[Any]) -> None:
    """The client left before its answer: nobody needs it."""
    if not gone.cancelled():
        drop(waiting, ClientDisconnect())
