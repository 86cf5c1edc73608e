"""The models of a repository: loaded, warmed, held against their canary, and only then served."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from .bundle import Bundle
from .canary import check_canary
from .errors import NotFound, NotReady, ShortlistError
from .head import Head
from .repository import scan

WARM_ROWS = (1, 8)

log = logging.getLogger("shortlist.models")


@dataclass
class Entry:
    """One version of a model: its head once it is ready, else the reason why it is not."""

    folder: Path
    state: Literal["loading", "ready", "failed"] = "loading"
    reason: str = "still loading"
    head: Head | None = None


class Models:
    """Name -> version -> entry. Filled by `load`, which may run in a thread."""

    def __init__(self, root: Path) -> None:
        """List the repository; raises NotFound when it is empty."""
        self.entries = {
            name: {version: Entry(folder) for version, folder in versions.items()}
            for name, versions in scan(root).items()
        }

    def load(self, device: str, threads: int | None, ready: Callable[[Head], None]) -> None:
        """Open every bundle; one that fails keeps its reason and the others are served. `ready` gets each head."""
        for name, versions in self.entries.items():
            for version, entry in versions.items():
                try:
                    entry.head = opened(entry.folder, device, threads)
                    ready(entry.head)
                    entry.state, entry.reason = "ready", ""
                    log.info("model %s version %d is ready on %s", name, version, entry.head.device)
                except ShortlistError as error:
                    entry.state, entry.reason = "failed", str(error)
                    log.error("model %s version %d failed: %s", name, version, error)

    def unready(self) -> list[str]:
        """`name/version: reason` of every model that is not ready."""
        return [
            f"{name}/{version}: {entry.reason}"
            for name, versions in self.entries.items()
            for version, entry in versions.items()
            if entry.state != "ready"
        ]

    def versions(self, name: str) -> dict[int, Entry]:
        """All versions of a model, ascending; raises NotFound."""
        if name not in self.entries:
            raise NotFound(f"Request for unknown model: '{name}' is not found")
        return self.entries[name]

    def get(self, name: str, version: int | None = None) -> Head:
        """The head of a version, the highest ready one by default; raises NotFound, NotReady."""
        versions = self.versions(name)
        if version is None:
            version = max(
                (number for number, entry in versions.items() if entry.state == "ready"), default=max(versions)
            )
        if version not in versions:
            raise NotFound(f"Request for unknown model: '{name}' version {version} is not found")
        entry = versions[version]
        if entry.head is None or entry.state != "ready":
            raise NotReady(f"model '{name}' version {version} is not ready: {entry.reason}")
        return entry.head


def opened(folder: Path, device: str, threads: int | None) -> Head:
    """A head that passed its canary and has run at the common batch sizes."""
    bundle = Bundle(folder)
    head = Head(bundle, device, threads)
    check_canary(head, bundle)
    for rows in WARM_ROWS:
        head.topk(np.zeros((rows, head.manifest.dim), np.float32), 1)
    return head
