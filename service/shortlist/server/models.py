"""The models of a repository: each is loaded, checked against its canary and warmed before it serves."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from shortlist.bundle.reader import CALIBRATION_FILE, Bundle
from shortlist.bundle.repository import list_bundles, scan
from shortlist.core.checks import cut
from shortlist.core.results import FloatArray, Labels
from shortlist.errors import BundleError, NotFound, NotReady, ShortlistError
from shortlist.evaluation.canary import check_canary
from shortlist.head import Head

State = Literal["loading", "ready", "failed", "unloaded"]

WARM_BATCH_ROWS = (1, 8)
WARM_CALLS = 3  # of each batch
WARM_K = 10  # classes asked for

log = logging.getLogger(__name__)


class CheckedHead(NamedTuple):
    """A head that passed its canary, the open bundle that it was made of, and P@k of the calibration's rows."""

    head: Head
    bundle: Bundle
    precision: float


@contextlib.contextmanager
def explain_failures(folder: Path) -> Iterator[None]:
    """Turn failures that nobody foresaw, of a bundle or of the runtime, into BundleError: others are served then."""
    try:
        yield
    except ShortlistError:
        raise
    except Exception as error:
        log.exception("%s could not be loaded", folder)
        raise BundleError(
            f"{folder} cannot be served ({type(error).__name__}: {cut(error)}): export it again"
        ) from error


def load_and_check(folder: Path, device: str | None = None, threads: int | None = None) -> CheckedHead:
    """Open a bundle, verify every file, replay its canary; raises ShortlistError, also for failures nobody foresaw."""
    with explain_failures(folder):
        bundle = Bundle(folder)
        head = Head(bundle, device, threads)
        return CheckedHead(head, bundle, check_canary(head, bundle))


def warm_up_head(head: Head, contexts: FloatArray) -> None:
    """Search some of `contexts` [n, d] in batches of the commonest sizes: the first request is not the slowest then."""
    k = min(WARM_K, head.manifest.max_k)
    for batch in WARM_BATCH_ROWS:
        for _ in range(WARM_CALLS):
            head.topk(contexts[:batch], k)
            if head.exact is not None:
                head.topk(contexts[:batch], k, exact=True)


class Model:
    """One version of a model, from its folder to a warmed head."""

    def __init__(self, name: str, version: int, folder: Path, *, delays_readiness: bool = True) -> None:
        """Read nothing yet. delays_readiness: whether the server is not ready until this model is."""
        self.name = name
        self.version = version
        self.folder = folder
        self.delays_readiness = delays_readiness
        self.state: State = "loading"
        self.reason = "it is still loading"
        self.labels: Labels | None = None
        self.bundle: Bundle | None = None
        self._head: Head | None = None

    def __str__(self) -> str:
        return f"model '{self.name}' version {self.version}"

    @property
    def head(self) -> Head:
        """The warmed head; raises NotReady with the reason where there is none."""
        head = self._head  # read once: another thread may unload the model
        if head is None:
            raise NotReady(f"{self} is not ready: {self.reason}")
        return head

    @property
    def head_in_use(self) -> Head | None:
        """The warmed head, None where there is none."""
        return self._head

    @property
    def classes(self) -> int:
        """V, the number of classes; 0 while there is no head."""
        head = self._head
        return 0 if head is None else head.manifest.classes

    @property
    def dense_row_candidates(self) -> int:
        """`scored` of a row that dense computed: V; -1, which no row has, where the head is its own reference."""
        head = self._head
        return -1 if head is None or head.is_own_reference else head.manifest.classes

    def load(self, device: str | None, threads: int | None) -> None:
        """Become ready, or failed with the reason; a head in use is replaced once the new one is warmed.

        Raises ShortlistError; a head that was in use before then stays.
        """
        if self._head is None:
            self.state, self.reason = "loading", "it is still loading"
        try:
            head, labels, bundle = prepare_head(self.folder, device, threads)
        except ShortlistError as error:
            log.error("%s failed: %s", self, error)
            if self._head is None:
                self.state, self.reason = "failed", str(error)
            raise
        # a bundle may have been copied to another name or version: the folder's is what is served
        head = head.with_identity(self.name, self.version)
        self._head, self.labels, self.bundle = head, labels, bundle
        self.state, self.reason = "ready", ""
        log.info("%s is ready on %s: %s", self, head.device, head.manifest.method)

    def unload(self) -> None:
        """Serve no more, and free the memory once running requests are done."""
        self.state, self.reason = "unloaded", "unloaded"
        self.delays_readiness = False
        self._head = self.labels = self.bundle = None
        log.info("%s is unloaded", self)


def prepare_head(folder: Path, device: str | None, threads: int | None) -> tuple[Head, Labels | None, Bundle]:
    """A checked and warmed head, its labels, and the open bundle; raises ShortlistError."""
    head, bundle, _ = load_and_check(folder, device, threads)
    with explain_failures(folder):
        warm_up_head(head, bundle.tensors(CALIBRATION_FILE)["contexts"])
        labels = head.label_array
    if head.plan.tally is not None:
        head.plan.tally.reset()  # warming calls are no requests
    return head, labels, bundle


def try_load(
    model: Model, device: str | None, threads: int | None, notify: Callable[[Model], None]
) -> BundleError | None:
    """Load one version, then call `notify`; returns the error with which it failed, if it did."""
    try:
        model.load(device, threads)
    except ShortlistError as error:
        return BundleError(f"{model} could not be loaded: {error}")
    finally:
        notify(model)
    return None


class Models:
    """All models of a repository, by name and version."""

    def __init__(self, repository: Path) -> None:
        """List the bundles; raises NotFound where there are none."""
        self.repository = repository
        self.by_name = {
            name: {version: Model(name, version, folder) for version, folder in versions.items()}
            for name, versions in scan(repository).items()
        }
        self.stop_event = threading.Event()
        self._loading = threading.Lock()  # one load or unload at a time: each takes memory and cores

    def __iter__(self) -> Iterator[Model]:
        for versions in self.by_name.values():
            yield from versions.values()

    def load_all(self, device: str | None, threads: int | None, notify: Callable[[Model], None]) -> None:
        """Load one after the other, until stopped; `notify` is called with each that is done."""
        for model in self:
            with self._loading:
                if self.stop_event.is_set():
                    return
                if model.state == "loading":  # else it was loaded or unloaded by name meanwhile
                    try_load(model, device, threads, notify)

    def load(self, name: str, device: str | None, threads: int | None, notify: Callable[[Model], None]) -> None:
        """Load every version of one model that the repository holds now, also new ones; drop those that it lost.

        A head stays in use until its successor is ready, or where that fails. Takes seconds.
        Raises NotFound, and BundleError with the first failure once every version was tried.
        """
        with self._loading:
            before = self.by_name.get(name, {})
            now = {
                version: before.get(version) or Model(name, version, folder, delays_readiness=False)
                for version, folder in list_bundles(self.repository, name).items()
            }
            self._replace(name, before | now)
            failures = [error for model in now.values() if (error := try_load(model, device, threads, notify))]
            if failures:
                raise failures[0]
            for version in before.keys() - now.keys():
                before[version].unload()
            self._replace(name, now)

    def unload(self, name: str) -> None:
        """Make every version NotReady until it is loaded again; raises NotFound."""
        with self._loading:
            for model in self.versions(name).values():
                model.unload()

    def _replace(self, name: str, versions: dict[int, Model]) -> None:
        """Replace the versions of one model; readers see the old mapping or the new one, never a mixture."""
        by_name = self.by_name | {name: dict(sorted(versions.items()))}
        self.by_name = dict(sorted(by_name.items()))

    def versions(self, name: str) -> dict[int, Model]:
        """Every version of a model, ascending; raises NotFound."""
        versions = self.by_name.get(name)
        if versions is None:
            raise NotFound(f"Request for unknown model: '{cut(name)}' is not found")
        return versions

    def find(self, name: str, version: int | None = None) -> Model:
        """One version of a model, by default the latest that is ready; raises NotFound."""
        versions = self.versions(name)
        if version is None:
            last = versions[next(reversed(versions))]
            if last.state == "ready":
                return last
            ready = [number for number, model in versions.items() if model.state == "ready"]
            version = max(ready or versions)
        if version not in versions:
            raise NotFound(f"Request for unknown model: '{cut(name)}' version {version} is not found")
        return versions[version]

    def check_ready(self) -> None:
        """Raise NotReady naming the first model that is loading or failed, failed ones first; also where none answers.

        What was added or unloaded by name while the server ran does not count, as long as something answers.
        """
        unready = [model for model in self if model.delays_readiness and model.state in ("loading", "failed")]
        if unready:
            first = min(unready, key=lambda model: model.state)
            raise NotReady(f"{first} is not ready: {first.reason}")
        if not any(model.head_in_use is not None for model in self):
            raise NotReady("no model answers: load one, or start the server again")


def parse_version(text: str | None, name: str) -> int | None:
    """A version of model `name` from a path or query, None for the latest; raises NotFound when it is no number."""
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise NotFound(f"Request for unknown model: '{cut(name)}' version {cut(text)} is not found")
    return int(text)
