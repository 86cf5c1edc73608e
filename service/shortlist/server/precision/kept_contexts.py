"""Contexts of live rows that were asked again, kept in files: heads can be fitted and measured on them."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from shortlist.core.results import FloatArray
from shortlist.server.models import Model

OWNER_ALONE = 0o600
SUFFIX = ".safetensors"

log = logging.getLogger(__name__)


class KeptContexts:
    """The last contexts of one model version: at most so many, none older than so many seconds. One thread uses it.

    Their file holds `contexts` [n, d] float32, oldest first, and `times` [n] float64, seconds since the epoch. clock:
    the same.
    """

    def __init__(self, path: Path, max_rows: int, max_seconds: float, clock: Callable[[], float] = time.time) -> None:
        """Go on from what an earlier server left in the file."""
        self.path, self.max_seconds, self.clock = path, max_seconds, clock
        self.rows: deque[tuple[float, FloatArray]] = deque(maxlen=max_rows)
        self.is_changed = False
        self.rows.extend(read_rows(path))

    def add(self, contexts: FloatArray) -> None:
        """Keep contexts [b, d], and forget as many of the oldest as are too many, or all that are of another d."""
        if self.rows and len(self.rows[-1][1]) != contexts.shape[1]:
            log.warning("%s holds contexts of another width than the model's, and is written anew", self.path)
            self.rows.clear()
        now = self.clock()
        self.rows.extend((now, row.copy()) for row in contexts)
        self.is_changed = True

    def write(self) -> bool:
        """Write the file anew if anything has changed, which is returned; an empty one is removed. Raises OSError."""
        self.forget_old()
        if not self.is_changed:
            return False
        if self.rows:
            write_private(self.path, save({"contexts": np.stack(self.contexts), "times": np.array(self.times)}))
        else:
            self.path.unlink(missing_ok=True)
        self.is_changed = False
        return True

    def forget_old(self) -> None:
        """Drop the rows that are too old; those of a time to come, as of a clock that was set back, are of now."""
        now = self.clock()
        rows = [(min(time, now), row) for time, row in self.rows if time >= now - self.max_seconds]
        if [time for time, _ in rows] != self.times:
            self.rows = deque(rows, self.rows.maxlen)
            self.is_changed = True

    @property
    def contexts(self) -> list[FloatArray]:
        """The contexts that are kept, each [d], oldest first."""
        return [row for _, row in self.rows]

    @property
    def times(self) -> list[float]:
        """When each of them was kept."""
        return [time for time, _ in self.rows]


class ContextFolder:
    """`<folder>/<name>/<version>.safetensors` of every version. One thread uses it.

    processes: of the server, of which one keeps contexts here, in the folder named by its number where there are more.
    """

    def __init__(self, folder: Path, max_rows: int, max_seconds: float, processes: int = 1) -> None:
        self.folder, self.max_rows, self.max_seconds, self.processes = folder, max_rows, max_seconds, processes
        self.files: dict[Path, KeptContexts] = {}

    def add(self, model: Model, contexts: FloatArray) -> None:
        """Keep contexts [b, d] of a version."""
        self.open(self.folder / model.name / f"{model.version}{SUFFIX}").add(contexts)

    def open(self, path: Path) -> KeptContexts:
        """What a file keeps."""
        if path not in self.files:
            self.files[path] = KeptContexts(path, self.max_rows, self.max_seconds)
        return self.files[path]

    def write(self) -> None:
        """Bring all files up to date, those of versions that are served no more too; a failure is logged."""
        try:
            self.open_all()
        except OSError as error:
            self.log_failure(self.folder, error)
        self.files = {path: kept for path, kept in self.files.items() if self.write_one(kept)}  # the others rest

    def open_all(self) -> None:
        """Look at every file that was left here before; raises OSError."""
        for folder in (self.folder, *list_left_folders(self.folder, self.processes)):
            for path in folder.glob(f"*/*{SUFFIX}"):
                if path.stem.isdecimal():
                    self.open(path)

    def write_one(self, kept: KeptContexts) -> bool:
        """Whether a file was written, or has to be again, since it could not be: the others do not wait for it."""
        try:
            return kept.write()
        except OSError as error:
            self.log_failure(kept.path, error)
            return True

    def log_failure(self, path: Path, error: OSError) -> None:
        """Say what keeps contexts from being kept."""
        log.error("contexts cannot be kept in %s (%s): make room, or give access", path, error.strerror)


def list_left_folders(folder: Path, processes: int) -> list[Path]:
    """Where a server with another number of processes has kept contexts, which grow old as well.

    The first process, or the only one, looks after them. folder: of a process.
    """
    if processes == 1:
        return [path for path in folder.glob("*") if path.name.isdecimal()]
    if folder.name != "0":
        return []
    home = folder.parent
    return [home, *(path for path in home.glob("*") if path.name.isdecimal() and int(path.name) >= processes)]


def read_rows(path: Path) -> list[tuple[float, FloatArray]]:
    """The rows of a file with their times; none where there is no file, nor, with a line in the log, of another."""
    try:
        tensors = load_file(path)
        count, _ = tensors["contexts"].shape
        return list(zip(tensors["times"].reshape(count).tolist(), tensors["contexts"], strict=True))
    except FileNotFoundError:
        return []
    except (SafetensorError, KeyError, ValueError, OSError):
        log.error("%s holds no kept contexts and is written anew", path)
        return []


def write_private(path: Path, content: bytes) -> None:
    """Put a file in place at once that its owner alone may read; leaves nothing where that fails. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ALONE), "wb") as file:
            file.write(content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
