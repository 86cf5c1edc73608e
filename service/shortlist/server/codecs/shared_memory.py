"""Tensors in system shared memory: clients on the same machine register regions below /dev/shm.

An object may be registered where its name begins with `KEY_PREFIX` and its owner is the server's user, so that nobody
reaches the memory of other programs through the server; of any other, a refusal does not even tell whether it exists.

Regions are read and written by pread and pwrite, not mapped: a client that truncates a mapped file kills the
server by SIGBUS at its next touch, and one that rewrites it changes numbers after they were checked.
"""

from __future__ import annotations

import os
import re
import stat
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shortlist.core.checks import cut, is_count
from shortlist.errors import BadInput, TooLarge

SHARED_MEMORY_FOLDER = Path("/dev/shm")
KEY_PREFIX = "shortlist-"
KEY_PATTERN = re.compile(rf"/?({KEY_PREFIX}[^/\0]{{1,200}})")
MAX_INPUT_BYTES = 16 << 20
MAX_REGIONS = 256  # each holds a file open
OPEN_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # neither waits for a pipe nor follows a link


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a file below /dev/shm, that is held open; offset and byte_size in bytes."""

    name: str
    key: str
    offset: int
    byte_size: int
    file: int

    def describe_tensor(self) -> dict[str, Any]:
        """The region as the protocol shows it."""
        return {"name": self.name, "key": self.key, "offset": self.offset, "byte_size": self.byte_size}

    def place(self, offset: int, size: int) -> int:
        """The offset in the file of `size` bytes from `offset`; raises BadInput when not all are in the region."""
        if not is_count(offset) or not is_count(size) or offset + size > self.byte_size:
            raise BadInput(
                f"{cut(size)} bytes from offset {cut(offset)} are not inside shared memory region "
                f"'{cut(self.name)}' of {self.byte_size} bytes"
            )
        return self.offset + offset


class SharedMemory:
    """The registered regions, by name. Threads may share it."""

    def __init__(self, max_input_bytes: int = MAX_INPUT_BYTES) -> None:
        """max_input_bytes: most bytes that are read for the inputs of one request, as of a body."""
        self.max_input_bytes = max_input_bytes
        self.regions: dict[str, Region] = {}
        self._lock = threading.Lock()  # a file must not be closed, and its number reused, while it is read

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Name `byte_size` bytes from `offset` of the shared memory object `key`.

        Raises BadInput when the name is taken, or the key or the sizes are wrong.
        """
        if not is_count(offset) or not is_count(byte_size) or byte_size == 0:
            raise BadInput(f"offset and byte_size of region '{cut(name)}' must be whole numbers, byte_size from 1")
        with self._lock:
            if name in self.regions:
                raise BadInput(f"shared memory region '{cut(name)}' is registered already: unregister it first")
            if len(self.regions) >= MAX_REGIONS:
                raise BadInput(f"{MAX_REGIONS} shared memory regions are registered: unregister one first")
            self.regions[name] = Region(name, key, offset, byte_size, open_object(key, offset + byte_size))

    def unregister(self, name: str | None = None) -> None:
        """Forget one region, or all; it is no error where one is not registered."""
        with self._lock:
            for each in [name] if name is not None else list(self.regions):
                region = self.regions.pop(each, None)
                if region is not None:
                    os.close(region.file)

    def status(self, name: str | None = None) -> list[dict[str, Any]]:
        """One region, or all, as the protocol shows them; raises BadInput."""
        with self._lock:
            regions = list(self.regions.values()) if name is None else [self._find(name)]
        return [region.describe_tensor() for region in regions]

    def check_size(self, size: int) -> None:
        """Raise TooLarge for `size` bytes of inputs, where one request may not read so many."""
        if size > self.max_input_bytes:
            raise TooLarge(
                f"inputs of {cut(size)} bytes are over the limit of {self.max_input_bytes}: "
                "send fewer rows in one request"
            )

    def read(self, region: str, offset: int, size: int) -> memoryview:
        """A copy of `size` bytes from `offset` in the region; raises BadInput, TooLarge."""
        self.check_size(size)
        with self._lock:
            source = self._find(region)
            data = os.pread(source.file, size, source.place(offset, size))
        if len(data) != size:
            raise BadInput(f"the memory of region '{cut(region)}' was made smaller after it was registered")
        return memoryview(data)

    def write(self, region: str, offset: int, data: bytes) -> None:
        """Copy `data` to `offset` in the region; raises BadInput."""
        with self._lock:
            target = self._find(region)
            start = target.place(offset, len(data))
            if os.fstat(target.file).st_size < start + len(data):
                raise BadInput(f"the memory of region '{cut(region)}' was made smaller after it was registered")
            try:
                complete = os.pwrite(target.file, data, start) == len(data)
            except OSError:  # pages of a sparse file are taken at the first write
                complete = False
        if not complete:
            raise BadInput(f"shared memory is full: {len(data)} bytes could not be written to region '{cut(region)}'")

    def _find(self, name: str) -> Region:
        if name not in self.regions:
            raise BadInput(f"Unable to find system shared memory region: '{cut(name)}' is not registered")
        return self.regions[name]


def open_object(key: Any, min_bytes: int) -> int:
    """The file of a shared memory object of at least `min_bytes` bytes, open; raises BadInput."""
    match = KEY_PATTERN.fullmatch(key) if isinstance(key, str) else None
    if match is None:
        raise BadInput(f"key '{cut(key)}' may not be registered: send '/{KEY_PREFIX}' and a name")
    try:
        file = os.open(SHARED_MEMORY_FOLDER / match[1], OPEN_FLAGS)
    except (OSError, UnicodeError):
        raise make_object_error(key) from None
    if not is_usable(os.fstat(file), min_bytes):
        os.close(file)
        raise make_object_error(key)
    return file


def is_usable(status: os.stat_result, min_bytes: int) -> bool:
    """Whether it is a plain file of this user's under one name, with at least `min_bytes` bytes."""
    is_own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink == 1
    return is_own and status.st_size >= min_bytes


def make_object_error(key: str) -> BadInput:
    """The one error for every object that cannot be used: it does not say why."""
    return BadInput(
        f"shared memory object '{cut(key)}' cannot be used: it must exist, belong to the server's user and hold "
        "offset + byte_size bytes"
    )
