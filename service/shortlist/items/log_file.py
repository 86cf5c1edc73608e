"""A log of frames on disk: appended whole or not at all, with a checksum each, so that a torn last one is recognised.

A frame is a magic number, the size of its content, the CRC-32 of what follows it, a position, and the content. A frame
is written and flushed to the disk before the next one begins, so that only the last one can be torn.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from shortlist.bundle.files import flush_folder
from shortlist.errors import BundleError, StorageFull

log = logging.getLogger(__name__)

MAGIC = b"SLIC"
HEAD = struct.Struct("<4sIIQ")  # magic, bytes of the content, CRC-32, position
MAX_FRAME_BYTES = 1 << 30
SEARCH_BYTES = 1 << 20  # read at a time
OPENING_SECONDS = 30.0  # that the first of several processes takes to open a log at most
RETRY_SECONDS = 0.05
synchronize = getattr(os, "fdatasync", os.fsync)  # macOS has fsync alone
WAYS_OUT = "make room on its disk and send the same again"


class Frame(NamedTuple):
    """position: of its last change. content: what was appended. end: where it ends in the file, in bytes."""

    position: int
    content: bytes
    end: int


def pack_frame(position: int, content: bytes) -> bytes:
    """A frame as it lies in the file."""
    checksum = zlib.crc32(content, zlib.crc32(struct.pack("<IQ", len(content), position)))
    return HEAD.pack(MAGIC, len(content), checksum, position) + content


def begins_frame(content: bytes) -> bool:
    """Whether a file that begins so may hold a torn frame: what a killed system has not written may be zeros."""
    return MAGIC.startswith(content) or not any(content)


def read_frame(file: int, start: int, size: int) -> Frame | None:
    """The frame that begins at `start` of an open file of `size` bytes; None where there is no whole one."""
    head = os.pread(file, HEAD.size, start)
    if len(head) < HEAD.size:
        return None
    magic, length, _, position = HEAD.unpack(head)
    if magic != MAGIC or length > MAX_FRAME_BYTES or start + HEAD.size + length > size:
        return None
    content = os.pread(file, length, start + HEAD.size)
    if pack_frame(position, content)[: HEAD.size] != head:
        return None
    return Frame(position, content, start + HEAD.size + length)


def read_frames(path: Path, start: int = 0, end: int | None = None) -> Iterator[Frame]:
    """The whole frames of a log from a place on, up to another, in their order; stops at the first that is none."""
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size if end is None else end
        while (frame := read_frame(file.fileno(), start, size)) is not None:
            yield frame
            start = frame.end


class LogFile:
    """A log that one process writes, or several of one server in turn.

    size: bytes of its whole frames that are known. is_first: whether no other process had it open.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        """Open or make a log; the first that has it open cuts a torn last frame off.

        shared: whether others may have it open that are opened so; the first keeps them out until `share`.
        Raises BundleError where the system refuses it, another server writes it, or a frame before the last one is
        damaged.
        """
        self.path = path
        self.broken: str | None = None
        with explain_refusals(path):
            self.file, self.is_first = open_locked(path, lock_shared if shared else lock_file)
            with close_on_error(self.file):
                self.size = self.find_end()
                if self.is_first:
                    self.cut_torn_end()
                flush_folder(path.parent)

    def check_place(self) -> None:
        """Raise StorageFull where the log is not at its path any more: what is written would be gone with it."""
        if not is_at(self.file, self.path):
            raise StorageFull(
                f"{self.path} was moved or removed while this server writes it: put it back, or start the server again"
            )

    def share(self) -> None:
        """Let other processes open it too."""
        fcntl.flock(self.file, fcntl.LOCK_SH)

    def find_end(self) -> int:
        """Where the last whole frame ends."""
        end = 0
        for frame in read_frames(self.path):
            end = frame.end
        return end

    def cut_torn_end(self) -> None:
        """Cut off what follows the last whole frame.

        Raises BundleError where that holds a whole one again, and for a file that never was a log.
        """
        size = os.fstat(self.file).st_size
        if size == self.size:
            return
        if find_whole_frame(self.file, self.size + 1, size):
            raise BundleError(
                f"{self.path} is damaged at byte {self.size}, before its end: restore it from a copy, or move it away"
            )
        if not self.size and not begins_frame(os.pread(self.file, len(MAGIC), 0)):
            raise BundleError(f"{self.path} is no log of changes, or one of another version: move it away")
        log.warning("%s: the last %d bytes were never acknowledged, and are cut off", self.path, size - self.size)
        os.ftruncate(self.file, self.size)
        os.fsync(self.file)

    def append(self, position: int, content: bytes) -> None:
        """Append a frame and wait until it is on the disk; raises StorageFull, and nothing is changed then."""
        if self.broken is not None:
            raise StorageFull(self.broken)
        frame = pack_frame(position, content)
        try:
            write_all(self.file, frame, self.size)
            synchronize(self.file)
        except OSError as error:
            self.take_back(error)
            raise StorageFull(f"{self.path} cannot be written ({error.strerror}): {WAYS_OUT}") from error
        self.size += len(frame)

    def take_back(self, error: OSError) -> None:
        """Remove what was written of a frame; where that fails nothing more is written until the log is opened anew."""
        try:
            os.ftruncate(self.file, self.size)
            os.fsync(self.file)
        except OSError:
            self.broken = f"{self.path} failed ({error.strerror}): mend its disk, then start the server again"

    def replace(self, frames: list[bytes]) -> None:
        """Put another log of these frames in the place of this one, whole or not at all; raises StorageFull."""
        other = self.path.with_name(self.path.name + ".new")
        try:
            file = os.open(other, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with close_on_error(file):
                lock_file(file, other)
                size = 0
                for frame in frames:
                    write_all(file, frame, size)
                    size += len(frame)
                os.fsync(file)
                os.replace(other, self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                other.unlink()
            raise StorageFull(f"{other} cannot be written ({error.strerror}): {WAYS_OUT}") from error
        os.close(self.file)
        self.file, self.size = file, size
        flush_folder(self.path.parent)

    def close(self) -> None:
        os.close(self.file)


@contextlib.contextmanager
def explain_refusals(path: Path) -> Iterator[None]:
    """Turn the system's refusal of a log, or of a file beside it, into BundleError."""
    try:
        yield
    except OSError as error:
        raise BundleError(
            f"{path} cannot be opened for changes of items ({error.strerror}): mend that, then load the model again"
        ) from error


@contextlib.contextmanager
def close_on_error(file: int) -> Iterator[None]:
    """Close an open file where what is done with it fails."""
    try:
        yield
    except BaseException:
        os.close(file)
        raise


def open_locked(path: Path, lock: Callable[[int, Path], bool]) -> tuple[int, bool]:
    """The file of a log, which is made where there is none, and what `lock` says of it; raises as `lock`.

    Where the log was replaced while this waited for the lock, what was opened is a deleted file: the new one is opened.
    """
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with close_on_error(file):
            is_first = lock(file, path)
            if is_at(file, path):
                return file, is_first
        os.close(file)


def is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one that the path leads to."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def lock_file(file: int, path: Path) -> bool:
    """Keep other processes from opening a log; returns that. Raises BundleError where one has it open."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BundleError(f"{path} is written by another server: give each a folder of its own") from None
    return True


def lock_shared(file: int, path: Path) -> bool:
    """Lock a log that processes share: whether this is the first of them, or shares it with others."""
    end = time.monotonic() + OPENING_SECONDS
    while True:
        with contextlib.suppress(BundleError):
            return lock_file(file, path)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
        if time.monotonic() > end:
            return lock_file(file, path)
        time.sleep(RETRY_SECONDS)


def write_all(file: int, content: bytes, start: int) -> None:
    """Write `content` from the place `start` on; raises OSError."""
    view = memoryview(content)
    while view:
        written = os.pwrite(file, view, start)
        start, view = start + written, view[written:]


def find_whole_frame(file: int, start: int, size: int) -> bool:
    """Whether a whole frame begins anywhere from `start` on."""
    while start < size:
        part = os.pread(file, SEARCH_BYTES, start)
        place = part.find(MAGIC)
        if place < 0:
            start += max(1, len(part) - len(MAGIC) + 1)
        elif read_frame(file, start + place, size) is not None:
            return True
        else:
            start += place + 1
    return False
