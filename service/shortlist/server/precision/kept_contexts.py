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
        while self.rows and self.rows[0][0] < self.clock() - self.max_seconds:
            self.rows.popleft()
            self.is_changed = True
        if not self.is_changed:
            return False
        if self.rows:
            write_private(self.path, save({"contexts": np.stack(self.contexts), "times": np.array(self.times)}))
        else:
            self.path.unlink(missing_ok=True)
        self.is_changed = False
        return True

    @property
    def contexts(self) -> list[FloatArray]:
        """The contexts that are kept, each [d], oldest first."""
        return [row for _, row in self.rows]

    @property
    def times(self) -> list[float]:
        """When each of them was kept."""
        return [time for time, _ in self.rows]


class ContextFolder:
    """`<folder>/<name>/<version>.safetensors` of every version. One thread uses it."""

    def __init__(self, folder: Path, max_rows: int, max_seconds: float) -> None:
        self.folder, self.max_rows, self.max_seconds = folder, max_rows, max_seconds
        self.files: dict[Path, KeptContexts] = {}

    def add(self, model: Model, contexts: FloatArray) -> None:
        """Keep contexts [b, d] of a version."""
        path = self.folder / model.name / f"{model.version}{SUFFIX}"
        if path not in self.files:
            self.files[path] = KeptContexts(path, self.max_rows, self.max_seconds)
        self.files[path].add(contexts)

    def write(self) -> None:
        """Bring all files up to date, those of versions that are served no more too; a failure is logged."""
        try:
            for path in self.folder.glob(f"*/*{SUFFIX}"):
                if path not in self.files and path.stem.isdecimal():
                    self.files[path] = KeptContexts(path, self.max_rows, self.max_seconds)
            self.files = {path: kept for path, kept in self.files.items() if kept.write()}  # the others rest
        except OSError as error:
            log.error("contexts cannot be kept in %s (%s): make room, or give access", self.folder, error.strerror)


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
