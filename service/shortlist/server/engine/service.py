"""The service: the models of one repository, their loading, readiness and draining, and what all requests share."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import CollectorRegistry
from starlette.requests import ClientDisconnect

from shortlist import __version__
from shortlist.errors import NotReady
from shortlist.runtime.devices import resolve_device
from shortlist.server.access.policy import AccessPolicy
from shortlist.server.codecs.named_lists import ListRegistry
from shortlist.server.codecs.shared_memory import SharedMemory
from shortlist.server.messages.body import BodyReader
from shortlist.server.messages.headers import RawHeaders
from shortlist.server.metrics.model_statistics import ModelStatistics
from shortlist.server.metrics.prometheus import Metrics
from shortlist.server.metrics.recorder import Recorder
from shortlist.server.metrics.triton import TritonMetrics
from shortlist.server.models import Model, Models
from shortlist.server.scheduling.admission import Admission
from shortlist.server.scheduling.quotas import Quotas
from shortlist.server.scheduling.turns import Turns
from shortlist.server.settings import Settings

from .bundle_watch import BundleWatch
from .clients import ClientAddresses
from .log_settings import LogSettings
from .served_model import ServedModel
from .trace_settings import TraceSettings

log = logging.getLogger(__name__)

MAX_WAITING_BODIES = 64  # large ones, that wait to be decoded


class Service:
    """The models of one repository, the threads that compute, and the metrics.

    draining: it still serves, but is no longer ready. closing: connections are closed after their response.
    """

    def __init__(
        self, settings: Settings, registry: CollectorRegistry | None = None, endpoint_names: Sequence[str] = ()
    ) -> None:
        """List the repository, check the device, read the API keys; load nothing yet.

        Raises NotFound, DeviceError, BadInput.

        registry, endpoint_names: of the metrics.
        """
        self.settings = settings
        self.device = resolve_device(settings.device)
        self.models = Models(settings.repository)
        self.served_models: dict[Model, ServedModel] = {}
        self.pool = ThreadPoolExecutor(settings.workers, thread_name_prefix="compute")
        quotas = None if settings.quota_rows is None else Quotas(settings.quota_rows)
        self.admission = Admission(settings.queue_rows, settings.queue_bytes, quotas=quotas)
        self.addresses = ClientAddresses(settings.trusted_proxies)
        self.decode_turns = Turns(MAX_WAITING_BODIES)
        self.bodies = BodyReader(settings.body_limit, settings.body_timeout)
        self.shared_memory = SharedMemory(settings.body_limit) if settings.shared_memory else None
        self.named_lists = ListRegistry(settings.list_tables, settings.list_bytes, settings.list_seconds)
        self.log_settings, self.trace_settings = LogSettings(), TraceSettings()
        self.metrics = Metrics(__version__, registry, endpoint_names)
        self.access = AccessPolicy(settings, self.metrics.refusals)
        self.bundle_watch = BundleWatch(self.models, settings.canary_seconds, self.publish_canary)
        self.unknown_model = Recorder(None, self.metrics)
        self.export_gauges()
        self.changing_models = asyncio.Lock()  # one load or unload at a time; the others wait without a thread
        self.draining = False
        self.closing = False

    def identify_client(self, headers: RawHeaders, address: str) -> str:
        """The name under which a client's shares and quota are counted: of its API key, else of its address.

        address: of the connection that a request with these headers came over.
        """
        return self.find_key_client(headers) or self.addresses(headers, address)

    def find_key_client(self, headers: RawHeaders) -> str | None:
        """The name of the client that a request's API key is of; None without a known key."""
        key = self.access.find_key(headers)
        return None if key is None else f"key {key.name}"

    def export_gauges(self) -> None:
        """Register what the metrics read from the service at a scrape."""
        self.metrics.ready.set_function(self.is_ready)
        self.metrics.held_rows.set_function(lambda: self.admission.rows)
        self.metrics.held_bytes.set_function(lambda: self.admission.bytes)
        self.metrics.caches.watch(
            "templates", lambda: sum(served_model.template_count for served_model in list(self.served_models.values()))
        )
        if self.settings.triton_metrics:
            TritonMetrics(self.all_statistics, self.metrics.registry)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models in the background and serve; finish what runs at the end."""
        loading = threading.Thread(target=self.load_all_models, name="load")
        tasks = [asyncio.create_task(self.bodies.cancel_late_bodies())]
        if self.settings.canary_seconds:
            tasks.append(asyncio.create_task(self.bundle_watch.run()))
        loading.start()
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            self.models.stop_event.set()
            self.pool.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(loading.join)

    def load_all_models(self) -> None:
        """Load every model, one after the other; takes seconds for each."""
        self.models.load_all(self.device, self.settings.threads, self.metrics.publish_model)

    def publish_canary(self, model: Model, passed: bool) -> None:
        """Publish whether the files and answers of a served model are still those of its load."""
        self.metrics.publish_canary(model, passed=passed)

    async def load_model(self, name: str, has_left: Callable[[], Awaitable[bool]]) -> None:
        """Load every version of a model that the repository holds now; raises NotFound, BundleError.

        has_left: whether the client that asks is gone; it is asked once its turn comes, and then nothing is loaded.
        """
        # verifying and warming takes seconds, which the event loop does not have
        async with self.changing_models:
            if await has_left():
                raise ClientDisconnect
            before = self.models.by_name.get(name, {})
            threads, notify = self.settings.threads, self.metrics.publish_model
            try:
                await asyncio.to_thread(self.models.load, name, self.device, threads, notify)
            finally:  # also where one of several versions failed
                self.forget_heads(name, before)

    async def unload_model(self, name: str) -> None:
        """Serve no version of a model, and free its memory, until it is loaded again; raises NotFound."""
        async with self.changing_models:
            await asyncio.to_thread(self.models.unload, name)  # waits for a load that runs
        for model in self.models.versions(name).values():
            self.metrics.withdraw_model(model)
            self.forget_head(model)

    def forget_heads(self, name: str, before: Mapping[int, Model]) -> None:
        """Let go of the heads that the versions of a model had before they were loaded again, or dropped."""
        now = self.models.by_name.get(name, {})
        for version, model in before.items():
            if now.get(version) is model:
                self.forget_head(model)
            else:
                self.retire_model(model)

    def retire_model(self, model: Model) -> None:
        """Forget a version that the repository has lost; requests to it that run are answered and counted."""
        self.metrics.withdraw_model(model)
        served_model = self.served_models.pop(model, None)
        if served_model is not None:
            served_model.forget_head()
            served_model.recorder.retire()

    def forget_head(self, model: Model) -> None:
        """Let go of what belongs to the former head of a model."""
        served_model = self.served_models.get(model)
        if served_model is not None:
            served_model.forget_head()

    def find_model(self, name: str, version: int | None) -> ServedModel:
        """One version of a model, by default the latest that is ready; raises NotFound."""
        return self.get_served_model(self.models.find(name, version))

    def get_served_model(self, model: Model) -> ServedModel:
        """The codec, batcher, admission and recorder of a model."""
        served_model = self.served_models.get(model)
        if served_model is None:  # threads ask too
            shared = self.pool, self.admission, self.metrics, self.shared_memory, self.named_lists
            new = ServedModel(model, self.settings, *shared)
            served_model = self.served_models.setdefault(model, new)
        return served_model

    def close(self, seconds: float) -> None:
        """Close connections after their response, and wait for the rest of bodies for so many seconds."""
        self.closing = True
        self.bodies.finish(seconds)

    def check_ready(self) -> None:
        """Raise NotReady with the reason, while models load and while the server drains."""
        if self.draining:
            raise NotReady("the server is draining: it finishes what it accepted and stops")
        self.models.check_ready()

    def is_ready(self) -> bool:
        try:
            self.check_ready()
        except NotReady:
            return False
        return True

    def settle(self) -> None:
        """Count all notes of requests, so that metrics and statistics are complete."""
        self.unknown_model.settle()
        for served_model in list(self.served_models.values()):
            served_model.recorder.settle()

    def all_statistics(self) -> Iterator[tuple[Model, ModelStatistics]]:
        """The statistics of every model of the repository that got a request."""
        for model in self.models:
            served_model = self.served_models.get(model)
            if served_model is not None:
                yield model, served_model.recorder.statistics
