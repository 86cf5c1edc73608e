"""What processes that share a log of changes know of each other: how far it is, and whose turn it is to write."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .log_file import close_on_error, explain_refusals

SHARED_ENDING = ".shared"  # of the file beside a log
END_BYTES = 8


class SharedLog:
    """How far a log is for all processes: in memory that they share, so that a look at it costs no system call."""

    def __init__(self, log: Path) -> None:
        """Open or make the file beside the log, with room on the disk; raises BundleError where the system refuses it.

        A file that is only said to be so long has no room, and on a full disk the first number written would kill us.
        """
        path = log.with_name(log.name + SHARED_ENDING)
        with explain_refusals(path):
            self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with close_on_error(self.file):
                os.posix_fallocate(self.file, 0, END_BYTES)
                self.numbers = np.frombuffer(mmap.mmap(self.file, END_BYTES), np.int64)

    @property
    def end(self) -> int:
        """Up to which byte of the log all that is written is on the disk."""
        return int(self.numbers[0])

    @end.setter
    def end(self, end: int) -> None:
        """Let all processes know; to be called by the one whose turn it is."""
        self.numbers[0] = end

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Write to the log while no other process does."""
        fcntl.flock(self.file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Let go of the file and of the memory; no more is heard of other processes."""
        os.close(self.file)
        self.numbers = np.zeros(1, np.int64)
