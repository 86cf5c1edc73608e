"""The service: the models of one repository, their loading, readiness and draining, and what all requests share."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from prometheus_client import CollectorRegistry
from starlette.types import Receive

from shortlist import __version__
from shortlist.bundle.repository import find_version_folders
from shortlist.errors import NotReady
from shortlist.items.store import ItemStore
from shortlist.runtime.devices import resolve_device
from shortlist.server.access.clients import ClientAddresses
from shortlist.server.access.policy import AccessPolicy
from shortlist.server.codecs.named_lists import ListRegistry
from shortlist.server.codecs.shared_memory import SharedMemory
from shortlist.server.lifecycle.endless_task import start_endless
from shortlist.server.lifecycle.model_changes import ModelChanges
from shortlist.server.lifecycle.releases import Change, ReleaseRules, Releases
from shortlist.server.messages.body import BodyReader
from shortlist.server.messages.headers import RawHeaders
from shortlist.server.metrics.item_series import ItemSeries
from shortlist.server.metrics.model_statistics import ModelStatistics
from shortlist.server.metrics.prometheus import LOAD_OUTCOMES, Metrics
from shortlist.server.metrics.recorder import Recorder
from shortlist.server.metrics.triton import TritonMetrics
from shortlist.server.models import Model
from shortlist.server.precision.model_precision import ModelPrecision
from shortlist.server.precision.monitor import Monitor
from shortlist.server.precision.series import PrecisionSeries
from shortlist.server.scheduling.admission import Admission
from shortlist.server.scheduling.quotas import Quotas
from shortlist.server.scheduling.turns import Turns
from shortlist.server.settings import Settings

from .bundle_watch import BundleWatch
from .log_settings import LogSettings
from .reports import Reports
from .served_model import ServedModel
from .trace_settings import TraceSettings

MakeReleases = Callable[[Path, ReleaseRules, Callable[[Model], None]], Releases]

MAX_WAITING_BODIES = 64  # large ones, that wait to be decoded


class Service:
    """The models of one repository, the threads that compute, and the metrics.

    draining: it still serves, but is no longer ready. closing: connections are closed after their response.
    """

    def __init__(
        self,
        settings: Settings,
        registry: CollectorRegistry | None = None,
        endpoint_names: Sequence[str] = (),
        make_releases: MakeReleases = Releases,
    ) -> None:
        """List the repository, check the device, read the API keys; raises NotFound, DeviceError, BadInput.

        registry, endpoint_names: of the metrics. make_releases: what loads the models, which nothing does yet.
        """
        self.settings = settings
        self.device = resolve_device(settings.device)
        self.metrics = Metrics(__version__, registry, endpoint_names)
        self.items = open_items(settings)
        rules = ReleaseRules.read(settings, self.items)
        releases = make_releases(settings.repository, rules, self.metrics.publish_model)
        self.models = releases.models
        self.changes = ModelChanges(releases, self.apply_change, settings.poll_seconds if settings.polls else None)
        self.on_load_error = self.on_fault = ignore_failure
        self.on_roll_back: Callable[[Model, str], None] = ignore_roll_back
        self.served_models: dict[Model, ServedModel] = {}
        self.keeping = threading.Lock()  # of `served_models` when versions come and go
        self.pool = ThreadPoolExecutor(settings.concurrent_models, thread_name_prefix="compute")
        quotas = None if settings.quota_rows is None else Quotas(settings.quota_rows)
        self.admission = Admission(settings.queue_rows, settings.queue_bytes, quotas=quotas)
        self.addresses = ClientAddresses(settings.trusted_proxies)
        self.decode_turns = Turns(MAX_WAITING_BODIES)
        self.bodies = BodyReader(settings.body_limit, settings.body_timeout)
        self.shared_memory = SharedMemory(settings.body_limit) if settings.shared_memory else None
        self.named_lists = ListRegistry(settings.list_tables, settings.list_bytes, settings.list_seconds)
        self.log_settings, self.trace_settings = LogSettings(), TraceSettings()
        self.access = AccessPolicy(settings, self.metrics.refusals)
        self.monitor = Monitor(
            settings, self.list_precisions, self.has_waiting_rows, self.react_to_alarm, self.redecode
        )
        self.bundle_watch = BundleWatch(self.models, settings.canary_seconds, self.metrics.publish_canary)
        self.unknown_model = Recorder(None, self.metrics)
        self.reports = Reports(settings)
        self.export_gauges()
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
        self.metrics.failed_versions.set_function(
            lambda: sum(model.state in ("failed", "rolled_back") for model in self.models)
        )
        self.metrics.repository_present.set_function(lambda: self.changes.releases.candidates.has_repository)
        self.metrics.held_rows.set_function(lambda: self.admission.rows)
        self.metrics.held_bytes.set_function(lambda: self.admission.bytes)
        self.metrics.caches.watch(
            "templates", lambda: sum(served_model.template_count for served_model in list(self.served_models.values()))
        )
        PrecisionSeries(self.list_precisions, self.metrics.registry)
        if self.items is not None:
            ItemSeries(self.items.ledgers, lambda: self.models, self.metrics.registry)
        if self.settings.triton_metrics:
            TritonMetrics(self.list_statistics, self.metrics.registry)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Load the models in the background and serve; finish what runs at the end."""
        works = [self.bodies.cancel_late_bodies(), self.load_and_watch()]
        if self.settings.precision_share:
            works.append(self.monitor.run())
        if self.settings.canary_seconds:
            works.append(self.bundle_watch.run())
        tasks = [start_endless(work, self.on_fault) for work in works]
        try:
            yield
        finally:
            self.stop_loading()
            for task in tasks:
                task.cancel()
            await self.monitor.close()
            self.pool.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(self.reports.stop)
            if self.items is not None:
                await asyncio.to_thread(self.items.close)

    async def load_and_watch(self) -> None:
        """Load every model, one after the other, which takes seconds for each; then keep up with the repository."""
        change = await self.changes.update_all()
        if change.failures and self.settings.exit_on_load_error:
            self.on_load_error()
        await self.changes.watch()

    def stop_loading(self) -> None:
        """Load nothing more: the server stops."""
        self.changes.releases.stop()

    async def unload_model(self, name: str, receive: Receive) -> None:
        """Serve no version of a model, and free its memory, until it is loaded again; see `ModelChanges.unload`."""
        for model in await self.changes.unload(name, receive):
            self.metrics.withdraw_model(model)
            self.forget_head(model)

    async def roll_back(self, model: Model, reason: str) -> None:
        """Serve a version no more that turned out worse than it promised; see `ModelChanges.roll_back`."""
        if await self.changes.roll_back(model, reason):
            self.on_roll_back(model, reason)

    def apply_change(self, change: Change) -> None:
        """Count what a change came to, and let go of what belongs to former heads."""
        counts = len(change.loaded), len(change.failures), len(change.rolled_back)
        for outcome, count in zip(LOAD_OUTCOMES, counts, strict=True):
            self.metrics.loads[outcome].inc(count)
        for model in change.loaded:
            self.forget_head(model)
        for model in change.retired:
            self.retire_model(model)

    def retire_model(self, model: Model) -> None:
        """Forget a version that is served no more; requests to it that run are answered and counted."""
        self.metrics.withdraw_model(model)
        with self.keeping:
            served_model = self.served_models.pop(model, None)
        if served_model is not None:
            served_model.forget_head()
            served_model.recorder.retire()

    def forget_head(self, model: Model) -> None:
        """Let go of what belongs to the former head of a model."""
        served_model = self.served_models.get(model)
        if served_model is not None:
            served_model.forget_head()

    def find_model(self, name: str, version: int | None, content: bytes | None = None) -> ServedModel:
        """The version that a request asks, which may be left to its content; raises NotFound, BadInput."""
        return self.get_served_model(self.models.find(name, version, content))

    def get_served_model(self, model: Model) -> ServedModel:
        """The codec, batcher, admission and recorder of a model."""
        served_model = self.served_models.get(model)
        return self.keep_served_model(model) if served_model is None else served_model

    def keep_served_model(self, model: Model) -> ServedModel:
        """Make the `ServedModel` of a model not asked before; of one dropped meanwhile, for this request alone."""
        shared = self.pool, self.admission, self.metrics, self.shared_memory, self.named_lists
        with self.keeping:  # threads ask too
            if self.models.holds(model):
                served_model = ServedModel(model, self.settings, *shared, self.monitor.watch(model))
                return self.served_models.setdefault(model, served_model)
        served_model = ServedModel(model, self.settings, *shared, None)
        served_model.recorder.retire()
        return served_model

    def list_precisions(self) -> list[ModelPrecision]:
        """Served precision of every version whose rows are asked again."""
        served_models = list(self.served_models.values())
        return [each.precision for each in served_models if each.precision is not None]

    def has_waiting_rows(self) -> bool:
        """Whether rows of requests are computed in batches, or wait for that."""
        return self.admission.rows > 0

    def redecode(self, model: Model) -> None:
        """Decode all requests to a version anew: they are computed otherwise from now on."""
        served_model = self.served_models.get(model)
        if served_model is not None:
            served_model.forget_templates()

    def find_precision(self, model: Model) -> ModelPrecision | None:
        """Served precision of a version; None where none of its rows were asked for."""
        served_model = self.served_models.get(model)
        return None if served_model is None else served_model.precision

    async def react_to_alarm(self, precision: ModelPrecision, reason: str) -> None:
        """Roll a version back whose precision is under its promise, where that is wanted and an older one stands."""
        model = precision.model
        if not self.settings.precision_rollback or not self.models.holds(model):
            return
        if min(find_version_folders(self.settings.repository / model.name), default=model.version) < model.version:
            await self.roll_back(model, reason)

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

    def list_statistics(self) -> Iterator[tuple[Model, ModelStatistics]]:
        """The statistics of every model of the repository that got a request."""
        for model in self.models:
            served_model = self.served_models.get(model)
            if served_model is not None:
                yield model, served_model.recorder.statistics


def open_items(settings: Settings) -> ItemStore | None:
    """The logs of changed items; None where none change. Raises BadInput."""
    if settings.item_changes is None:
        return None
    return ItemStore(settings.item_changes, settings.repository, shared=settings.processes > 1)


def ignore_failure() -> None:
    """Do nothing where no model could be loaded at the start or a task failed: the default where nobody stops."""


def ignore_roll_back(model: Model, reason: str) -> None:
    """Do nothing where a version was rolled back: the default where no other process serves it."""
