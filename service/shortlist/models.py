"""The models of a repository: each is loaded, held against its canary and warmed before it answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .bundle import CALIBRATION, Bundle
from .canary import check_canary
from .errors import BundleError, NotFound, NotReady, ShortlistError
from .head import Head
from .protocol import cut
from .repository import scan

State = Literal["loading", "ready", "failed"]
Labels = npt.NDArray[np.object_]

WARM_BATCHES = (1, 8)
WARM_CALLS = 3
WARM_K = 10

log = logging.getLogger(__name__)


def load_checked(folder: Path, device: str | None = None, threads: int | None = None) -> tuple[Head, float]:
    """Open a bundle, verify every file, replay its canary; returns the head and the calibration's P@k.

    Raises ShortlistError, also for failures that nobody foresaw.
    """
    try:
        bundle = Bundle(folder)
        head = Head(bundle, device, threads)
        return head, check_canary(head, bundle)
    except ShortlistError:
        raise
    except Exception as error:
        log.exception("%s could not be loaded", folder)
        raise BundleError(
            f"{folder} cannot be served ({type(error).__name__}: {cut(error)}): export it again"
        ) from error


def warm(head: Head) -> None:
    """A few calls in the batch sizes that come most, so that the first request is not the slowest."""
    contexts = Bundle(head.folder, verify=False).tensors(CALIBRATION)["contexts"]
    k = min(WARM_K, head.manifest.max_k)
    for batch in WARM_BATCHES:
        for _ in range(WARM_CALLS):
            head.topk(contexts[:batch], k)
            if head.dense is not None:
                head.topk(contexts[:batch], k, exact=True)


class Model:
    """One version of a model, from its folder to a warmed head."""

    def __init__(self, name: str, version: int, folder: Path) -> None:
        """Nothing is read yet."""
        self.name = name
        self.version = version
        self.folder = folder
        self.state: State = "loading"
        self.reason = "it is still loading"
        self.labels: Labels | None = None
        self._head: Head | None = None

    def __str__(self) -> str:
        return f"model '{self.name}' version {self.version}"

    @property
    def head(self) -> Head:
        """The warmed head; raises NotReady with the reason where there is none."""
        if self._head is None:
            raise NotReady(f"{self} is not ready: {self.reason}")
        return self._head

    def load(self, device: str | None, threads: int | None) -> None:
        """Become ready, or failed with a reason."""
        try:
            head, _ = load_checked(self.folder, device, threads)
            warm(head)
            self.labels = labels_of(head)
        except ShortlistError as error:
            self.state, self.reason = "failed", str(error)
            log.error("%s failed: %s", self, error)
            return
        # a bundle may have been copied to another name or version: the folder's is what is served
        head.manifest = head.manifest.model_copy(update={"name": self.name, "version": self.version})
        self._head = head
        self.state, self.reason = "ready", ""
        log.info("%s is ready on %s: %s", self, head.device, head.manifest.method)

    def info(self) -> dict[str, Any]:
        """What /v1/models says of this version."""
        state: dict[str, Any] = {
            "name": self.name,
            "version": self.version,
            "state": self.state,
            "reason": self.reason or None,
        }
        if self._head is None:
            return state
        manifest = self._head.manifest.model_dump(
            include={
                "method",
                "plan",
                "reference",
                "classes",
                "dim",
                "dtype",
                "max_k",
                "normalizer",
                "options",
                "seed",
                "logit_scale",
                "soft_cap",
                "dense_crossover",
                "quality",
            }
        )
        return (
            state
            | manifest
            | {
                "device": self._head.device,
                "threads": self._head.threads,
                "labels": self.labels is not None,
                "exact": self._head.dense is not None,
            }
        )


def labels_of(head: Head) -> Labels | None:
    """[V + 1] labels that JSON can hold; the last one, None, stands for the id -1."""
    if head.labels is None:
        return None
    printable = [label.encode("utf-8", "replace").decode() for label in head.labels]
    return np.array([*printable, None], dtype=object)


class Models:
    """All models of a repository, by name and version."""

    def __init__(self, repository: Path) -> None:
        """List the bundles; raises NotFound where there are none."""
        self.by_name = {
            name: {version: Model(name, version, folder) for version, folder in versions.items()}
            for name, versions in scan(repository).items()
        }
        self.stopped = threading.Event()

    def __iter__(self) -> Iterator[Model]:
        for versions in self.by_name.values():
            yield from versions.values()

    def load_all(self, device: str | None, threads: int | None, notify: Callable[[Model], None]) -> None:
        """Load one after the other, until stopped; `notify` hears of each that is done."""
        for model in self:
            if self.stopped.is_set():
                return
            model.load(device, threads)
            notify(model)

    def versions(self, name: str) -> dict[int, Model]:
        """Every version of a model, ascending; raises NotFound."""
        if name not in self.by_name:
            raise NotFound(f"Request for unknown model: '{cut(name)}' is not found")
        return self.by_name[name]

    def find(self, name: str, version: int | None = None) -> Model:
        """One version of a model, by default the latest that is ready; raises NotFound."""
        versions = self.versions(name)
        if version is None:
            ready = [number for number, model in versions.items() if model.state == "ready"]
            version = max(ready or versions)
        if version not in versions:
            raise NotFound(f"Request for unknown model: '{name}' version {version} is not found")
        return versions[version]

    def check_ready(self) -> None:
        """Raise NotReady naming the first model that is loading or failed; failed ones first."""
        waiting = sorted((model for model in self if model.state != "ready"), key=lambda model: model.state)
        if waiting:
            raise NotReady(f"{waiting[0]} is not ready: {waiting[0].reason}")
