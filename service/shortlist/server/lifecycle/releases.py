"""Bringing what is served in line with the repository: versions are loaded, swapped in and dropped, one at a time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from shortlist.bundle.reader import Bundle
from shortlist.bundle.repository import list_bundles, list_names, scan
from shortlist.errors import BundleError, ShortlistError
from shortlist.evaluation.checked_head import open_bundle
from shortlist.items.store import ItemStore
from shortlist.runtime.devices import resolve_device
from shortlist.server.models import Model
from shortlist.server.settings import Settings

from .arrivals import Arrivals, Signature, take_signature
from .candidates import Candidates, Folders
from .declaration import check_pinned, read_declaration
from .registry import Models
from .version_table import VersionTable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReleaseRules:
    """How versions are loaded and chosen.

    device, threads: of heads. latest: so many of the newest versions are served where a model does not say, None for
    all. arrival_seconds: a version's files are waited for until they have not changed for so long; None where nobody
    looks again, so that what is there is loaded as it is. items: what heads get their
    changed items from; None where none change.
    """

    device: str | None = None
    threads: int | None = None
    latest: int | None = None
    arrival_seconds: float | None = None
    items: ItemStore | None = None

    @classmethod
    def read(cls, settings: Settings, items: ItemStore | None) -> ReleaseRules:
        """The rules that the server's settings ask for; raises DeviceError."""
        arrival_seconds = settings.arrival_seconds if settings.polls else None
        device = resolve_device(settings.device)
        return cls(device, settings.threads, settings.latest_versions, arrival_seconds, items)


@dataclass
class Change:
    """What a change came to: versions that are ready now, that are served no more, that failed or were rolled back."""

    loaded: list[Model] = field(default_factory=list)
    retired: list[Model] = field(default_factory=list)
    failures: list[BundleError] = field(default_factory=list)
    rolled_back: list[Model] = field(default_factory=list)


class Releases:
    """Loads and drops versions. Every method but `stop` takes seconds, and is called by one thread at a time.

    A version that answers stays until another one of its model does.
    """

    def __init__(self, repository: Path, rules: ReleaseRules, publish: Callable[[Model], None]) -> None:
        """List what there is to load. publish: called with every version that has become ready.

        Raises NotFound where there is no repository, or one without bundles; where it is watched, these may come later.
        """
        arrivals = None if rules.arrival_seconds is None else Arrivals(rules.arrival_seconds)
        self.rules, self.publish = rules, publish
        self.candidates = Candidates(repository, rules.latest, arrivals)
        self.models = Models()
        self.stop_event = threading.Event()
        for name in scan(repository) if arrivals is None else list_names(repository):
            self.list_model(name)

    def list_model(self, name: str) -> None:
        """Put the versions that are to be served at the start into the registry; all of them are still loading."""
        try:
            folders = self.candidates.find_folders(name)
        except OSError:
            return  # the first update says why
        declaration, fault = self.candidates.declare(VersionTable(name, {}), folders)
        table = VersionTable(name, {}, declaration)
        models = {version: Model(name, version, folders[version]) for version in self.candidates.choose(table, folders)}
        self.models.put(table.with_versions(models, declaration, fault))

    def list_models(self) -> list[str]:
        """The names of all models that are served or could be; none where the repository is away."""
        names = self.candidates.list_models()
        return [] if names is None else sorted({*names, *self.models.by_name})

    def stop(self) -> None:
        """Load nothing more from now on; a load that runs is finished."""
        self.stop_event.set()

    def retry_failures(self) -> None:
        """Load versions that failed at the next update, be they as they were: what kept them may lie elsewhere."""
        for model in self.models:
            if model.state == "failed":
                self.candidates.rejections.pop(model.folder, None)

    def reload(self, name: str) -> Change:
        """Load every version of a model that is to be served, whatever became of it before.

        Heads stay in use meanwhile. Failures of versions are in what is returned. Raises NotFound, and BundleError for
        a wrong `model.json`.
        """
        repository = self.candidates.repository
        folders = list_bundles(repository, name)
        check_pinned(read_declaration(repository / name), repository / name, folders)
        for folder in folders.values():
            self.candidates.rejections.pop(folder, None)
        return self.update(name, again=True)

    def update(self, name: str, *, again: bool = False, mark: Model | None = None) -> Change:
        """Serve the versions of one model that are to be served now.

        again: also load those that are served already. mark: stands for its version where that is served no more.
        What is wrong with the model or with a version is logged and stops no other.
        """
        change = Change()
        table = self.models.by_name.get(name) or VersionTable(name, {})
        if not again and any(model.state == "unloaded" for model in table.by_number.values()):
            return change  # until it is loaded by name
        try:
            folders = self.candidates.find_folders(name)
        except OSError as error:
            self.candidates.warn(name, f"{error.filename} cannot be listed ({error.strerror}); what is served stays")
            return change
        self.candidates.forget_gone(name, folders)
        declaration, fault = self.candidates.declare(table, folders)
        if fault is not None:
            self.note_fault(table, folders, fault, change)
            return change
        versions = self.load_versions(table.with_versions(table.by_number, declaration, None), folders, change, again)
        if not self.stop_event.is_set():
            self.drop_versions(name, folders, versions, change, mark)
        return change

    def note_fault(self, table: VersionTable, folders: Folders, fault: str, change: Change) -> None:
        """Leave a model as it is whose file is wrong; where none of its versions answers, say why."""
        models = table.by_number
        if not any(map(table.answers, models)):
            models = {version: self.find_model(table, version, folders) for version in folders}
            for model in models.values():
                model.set_aside("failed", fault)
            change.failures.append(BundleError(fault))
        self.models.put(table.with_versions(models, table.declaration, fault))

    def find_model(self, table: VersionTable, version: int, folders: Folders) -> Model:
        """A version of the table; one that came while the server ran is new, and readiness does not wait for it."""
        known = table.by_number.get(version)
        return known or Model(table.name, version, folders[version], delays_readiness=False)

    def load_versions(self, table: VersionTable, folders: Folders, change: Change, again: bool) -> set[int]:
        """Load what is to be served, in ascending order, and what takes the place of those that fail.

        Returns the versions that are to be served.
        """
        done: set[int] = set()
        skipped: set[int] = set()
        while True:
            versions = self.candidates.choose(table, folders, skipped)
            waiting = [version for version in sorted(versions - done) if again or not table.answers(version)]
            if not waiting or self.stop_event.is_set():
                self.models.put(table)
                return versions
            version = waiting[0]
            done.add(version)
            model = self.find_model(table, version, folders)
            loading = table.with_versions(table.by_number | {version: model}, table.declaration, None)
            self.models.put(loading)
            self.load_version(model, change)
            if model.head_in_use is None:
                skipped.add(version)
            if model.state != "loading":  # else it is seen again once its files are there
                table = loading

    def load_version(self, model: Model, change: Change) -> None:
        """Load one version. One whose files still arrive stays as it is, and is not counted as failed."""
        signature = take_signature(model.folder)
        if model.head_in_use is None:
            model.set_aside("loading", "it is still loading")
        bundle: Bundle | None = None
        try:
            bundle = open_bundle(model.folder)
            model.load(self.rules.device, self.rules.threads, bundle, self.rules.items)
        except ShortlistError as error:
            if bundle is not None or not self.candidates.is_arriving(model.folder):
                self.note_failure(model, signature, error, change)
            return
        self.candidates.rejections.pop(model.folder, None)
        self.publish(model)
        change.loaded.append(model)

    def note_failure(self, model: Model, signature: Signature, error: ShortlistError, change: Change) -> None:
        """Say why a version did not load; one that answers by its former head goes on."""
        log.error("%s failed: %s", model, error)
        change.failures.append(BundleError(f"{model} could not be loaded: {error}"))
        if model.head_in_use is None:
            model.set_aside("failed", str(error))
            self.candidates.rejections[model.folder] = signature

    def drop_versions(
        self, name: str, folders: Folders, versions: Collection[int], change: Change, mark: Model | None
    ) -> None:
        """Serve the chosen versions alone; those before them stay where none of these answers.

        mark: stands for its version from the moment at which that is served no more.
        Versions that were unloaded and are not chosen any more are forgotten: else the model would count as unloaded.
        """
        table = self.models.by_name.get(name)
        if table is None:
            return
        answering = {version: model for version, model in table.by_number.items() if model.head_in_use is not None}
        kept = {version: model for version, model in answering.items() if version in versions}
        if not kept and folders:
            kept = answering
        others = {
            version: model
            for version, model in table.by_number.items()
            if version not in answering and version in folders and model.state != "unloaded"
        }
        gone = answering.keys() - kept.keys()
        if mark is not None and mark.version in gone:
            others[mark.version] = mark
        self.models.put(table.with_versions(kept | others, table.declaration, table.fault))
        for version in gone:
            log.info("%s is served no more", answering[version])
            change.retired.append(answering[version])

    def unload(self, name: str) -> list[Model]:
        """Make every version of a model NotReady until it is loaded again; returns them; raises NotFound."""
        models = list(self.models.find_table(name).by_number.values())
        for model in models:
            model.unload()
        return models

    def roll_back(self, model: Model, reason: str) -> Change:
        """Serve a version no more that turned out worse than it promised, and the one before it in its place.

        That is loaded first, where it is not served any more; where there is none that answers, nothing changes.
        """
        self.candidates.rejections[model.folder] = take_signature(model.folder)
        mark = Model(model.name, model.version, model.folder, delays_readiness=False)
        mark.set_aside("rolled_back", f"rolled back: {reason}")
        change = self.update(model.name, mark=mark)
        if model in change.retired:
            log.error("%s is rolled back: %s", model, reason)
            change.rolled_back.append(model)
        else:
            log.error("%s is not rolled back, since no other version answers: %s", model, reason)
            self.candidates.rejections.pop(model.folder, None)
        return change
