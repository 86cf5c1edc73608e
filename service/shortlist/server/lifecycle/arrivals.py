"""Whether the files of a version have all arrived: copies and downloads take their time, file by file."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from shortlist.bundle.files import Stamp, check_files, take_stamp, walk_tree
from shortlist.bundle.manifest import read_manifest
from shortlist.errors import ShortlistError

Signature = frozenset[tuple[str, Stamp | None]]


class Sighting(NamedTuple):
    """The files of a folder as they were last seen, and since when they are so, by the clock of `Arrivals`."""

    signature: Signature
    since: float


def take_signature(folder: Path) -> Signature:
    """Everything below `folder`, with its stamp; empty where it cannot be listed."""
    try:
        return frozenset((entry.path, take_stamp(Path(entry.path))) for entry in walk_tree(folder))
    except OSError:  # a folder that goes away meanwhile
        return frozenset()


def digest_signature(folder: Path) -> str:
    """The signature of a folder as a short text, as another process takes it of the same files."""
    return hashlib.sha256(repr(sorted(take_signature(folder))).encode()).hexdigest()


def is_complete(folder: Path) -> bool:
    """Whether `folder` has a manifest, and every file that it names in its size. The hashes are the load's to check."""
    try:
        check_files(folder, read_manifest(folder), hashes=False)
    except ShortlistError:
        return False
    return True


class Arrivals:
    """The folders of versions that are not served, and when their files last changed.

    seconds: a folder whose files have not changed for so long is as whole as it will be.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self.sightings: dict[Path, Sighting] = {}

    def has_arrived(self, folder: Path) -> bool:
        """Whether to load a version: its files are all there, or no more of them come."""
        return not self.is_changing(folder) or is_complete(folder)

    def is_changing(self, folder: Path) -> bool:
        """Whether files of a version changed a short while ago, or are seen for the first time."""
        signature, now = take_signature(folder), self.clock()
        sighting = self.sightings.get(folder)
        if sighting is None or sighting.signature != signature:
            sighting = self.sightings[folder] = Sighting(signature, now)
        return now - sighting.since < self.seconds

    def forget_gone(self, home: Path, present: Collection[Path]) -> None:
        """Forget the folders in `home` that are not present any more."""
        for folder in [folder for folder in self.sightings if folder.parent == home and folder not in present]:
            del self.sightings[folder]
