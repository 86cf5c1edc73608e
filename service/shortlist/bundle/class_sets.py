"""Named sets of classes: compressed bitmaps in files of a bundle, or beside the versions of a model.

A file holds `MAGIC`, the CRC-32 of the rest in four bytes, little-endian, and a Roaring bitmap of class ids in its
portable format. A set beside the versions stands before one of the same name in the bundle.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Generic, TypeVar
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from shortlist.core.checks import cut
from shortlist.core.extras import require
from shortlist.core.filters import Members
from shortlist.core.results import IdArray
from shortlist.errors import BadInput, BundleError, NotFound

from .files import flush_folder

SETS_FOLDER = "sets"
SUFFIX = ".roaring"
MAGIC = b"shortlist set 1\n"
HEADER_BYTES = len(MAGIC) + 4
NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_REQUEST_SETS = 16  # named by one request
MAX_UNPACKED_BYTES = 256 << 20  # of combinations of sets that are kept for a head
MAX_PACKED_BYTES = 64 << 20  # of sets that are kept as bits, of which any combination is made
ENTRY_BYTES, STAMP_BYTES = 512, 384  # that an entry takes beside its marks or bits, and each file of its key
MAX_NAMED = 10  # sets that an error lists
LEFTOVER_SECONDS = 3600.0  # no file is that old that is still written

SetNames = str | Sequence[str] | None
Stamped = tuple[str, int, int, int]  # a file with its inode, size, and time of change in ns
Combination = tuple[tuple[Stamped, ...], int]  # files of sets, of which the first so many are those within
BYTE_BITS = 8
Bits = npt.NDArray[np.uint8]  # [ceil(V / 8)], a bit for each class

Key = TypeVar("Key", Stamped, Combination)
Entry = TypeVar("Entry", Members, Bits)


class RecentEntries(Generic[Key, Entry]):
    """What was asked for last, in a bounded number of bytes; nbytes: of all entries. Threads take turns by a lock."""

    def __init__(self) -> None:
        self.entries: OrderedDict[Key, Entry] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self.entries)

    def get(self, key: Key) -> Entry | None:
        """What is kept of `key`, which was asked for last from now on; None where nothing is."""
        if key in self.entries:
            self.entries.move_to_end(key)
        return self.entries.get(key)

    def keep(self, key: Key, entry: Entry, most: int) -> None:
        """Keep an entry, in place of what was not asked for the longest, in `most` bytes."""
        self.drop(key)
        self.entries[key] = entry
        self.nbytes += self.measure(key, entry)
        while self.nbytes > most and len(self.entries) > 1:
            self.drop(next(iter(self.entries)))

    def drop(self, key: Key) -> None:
        """Keep nothing of `key` any more."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.nbytes -= self.measure(key, entry)

    def measure(self, key: Key, entry: Entry) -> int:
        """The bytes that an entry takes at most."""
        return entry.nbytes + ENTRY_BYTES + STAMP_BYTES * len(list_files(key))


class ClassSets:
    """The named sets of one head, read as they are asked for: each once, whatever others it is asked beside.

    Threads may share it. folders: where they are looked for, the first first. A set that was replaced is noticed at the
    next request; what is kept of one that is gone is forgotten when another is read.
    """

    def __init__(self, folders: Sequence[Path], classes: int, model: str) -> None:
        self.folders, self.classes, self.model = tuple(folders), classes, model
        self.folder_names = tuple(map(str, folders))
        self.unpacked: RecentEntries[Combination, Members] = RecentEntries()
        self.packed: RecentEntries[Stamped, Bits] = RecentEntries()
        self.lock = threading.Lock()
        ALL_SETS.add(self)

    def find(self, within: SetNames, without: SetNames) -> Members | None:
        """The classes that are in all sets `within` and in none of `without`; None where none is named.

        Raises BadInput, NotFound for a name that no set has, BundleError for a damaged file.
        """
        inside, outside = parse_set_names("within", within), parse_set_names("without", without)
        if not inside and not outside:
            return None
        key = tuple(self.stamp(name) for name in (*inside, *outside)), len(inside)
        members = self.look_up(self.unpacked, key)
        if members is None:
            members = self.combine(*key)
            self.keep(self.unpacked, key, members, MAX_UNPACKED_BYTES)
        return members

    def stamp(self, name: str) -> Stamped:
        """The file of a set, and what changes when it is replaced; raises NotFound."""
        for folder in self.folder_names:
            file = stamp_file(f"{folder}/{name}{SUFFIX}")  # of every request: a `Path` takes three times as long
            if file is not None:
                return file
        known = sorted({known for folder in self.folders for known in list_set_names(folder)})
        some = ", ".join(known[:MAX_NAMED]) + (", ..." if len(known) > MAX_NAMED else "")
        raise NotFound(f"{self.model} has no set '{cut(name)}': {f'it has {some}' if known else 'it has none'}")

    def combine(self, files: Sequence[Stamped], inside: int) -> Members:
        """The classes that are in the sets of the first `inside` files and in none of the others."""
        permitted = np.full(-(-self.classes // BYTE_BITS), 0xFF, np.uint8)
        for number, file in enumerate(files):
            bits = self.read_bits(file)
            permitted &= bits if number < inside else ~bits
        return Members(np.unpackbits(permitted, count=self.classes).view(bool))

    def read_bits(self, file: Stamped) -> Bits:
        """The bits of one set; raises BundleError."""
        bits = self.look_up(self.packed, file)
        if bits is None:
            marks, ids = np.zeros(self.classes, bool), read_set(Path(file[0]))
            marks[ids[: np.searchsorted(ids, self.classes)]] = True
            bits = np.packbits(marks)
            self.keep(self.packed, file, bits, MAX_PACKED_BYTES)
            self.forget_stale()
        return bits

    def forget_stale(self) -> None:
        """Forget what is kept of sets that were replaced or deleted: nobody will ask for it."""
        with self.lock:
            stale = {file for file in self.packed.entries if stamp_file(file[0]) != file}
            for file in stale:
                self.packed.drop(file)
            for key in [key for key in self.unpacked.entries if stale and not stale.isdisjoint(key[0])]:
                self.unpacked.drop(key)

    def look_up(self, entries: RecentEntries[Key, Entry], key: Key) -> Entry | None:
        """What is kept of `key`; None where nothing is."""
        with self.lock:
            return entries.get(key)

    def keep(self, entries: RecentEntries[Key, Entry], key: Key, entry: Entry, most: int) -> None:
        """Keep an entry for the next request, in `most` bytes with the others."""
        with self.lock:
            entries.keep(key, entry, most)


ALL_SETS: WeakSet[ClassSets] = WeakSet()


def renew_locks() -> None:
    """Called in a process that was just forked: a thread of its parent may have held a lock."""
    for sets in list(ALL_SETS):
        sets.lock = threading.Lock()


os.register_at_fork(after_in_child=renew_locks)


def stamp_file(path: str) -> Stamped | None:
    """A file, and what changes when it is replaced; None where there is none."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return path, status.st_ino, status.st_size, status.st_mtime_ns


def list_files(key: Stamped | Combination) -> tuple[Any, ...]:
    """The files of an entry's key."""
    return key[0] if isinstance(key[0], tuple) else key[:1]


def parse_set_names(what: str, names: SetNames) -> tuple[str, ...]:
    """The names of sets, of one or of a list, each once, in order; raises BadInput."""
    if names is None:
        return ()
    several = (names,) if isinstance(names, str) else names
    if not isinstance(several, list | tuple) or not all(isinstance(name, str) for name in several):
        raise BadInput(f"{what} must be the name of a set, or a list of names")
    if len(several) > MAX_REQUEST_SETS:
        raise BadInput(f"{what} names {len(several)} sets: name {MAX_REQUEST_SETS} at most")
    for name in several:
        check_set_name(name)
    return tuple(sorted(set(several)))


def check_set_name(name: str) -> None:
    """Raise BadInput when `name` cannot name a set: it is the name of a file."""
    if not NAME_PATTERN.fullmatch(name):
        raise BadInput(f"'{cut(name)}' cannot name a set: use up to 128 letters, digits, '.', '_' and '-'")


def make_path(folder: Path, name: str) -> Path:
    """The file of a set of a checked name."""
    return folder / f"{name}{SUFFIX}"


def list_set_names(folder: Path) -> list[str]:
    """The names of the sets in a folder, in order; none where there is no such folder."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}") if path.name[0] != ".")


def pack_set(ids: Any) -> bytes:
    """The bytes of the file of a set of `ids` [m], class ids from 0 in any order."""
    bitmaps: Any = require("pyroaring", "cpu")
    bitmap = bitmaps.BitMap(np.unique(np.asarray(ids, np.uint32)))
    bitmap.run_optimize()
    content: bytes = bitmap.serialize()
    return MAGIC + zlib.crc32(content).to_bytes(4, "little") + content


def read_set(path: Path) -> IdArray:
    """The ids [m] of a set's file, ascending int64; raises NotFound, BundleError where it is none, or damaged."""
    bitmaps: Any = require("pyroaring", "cpu")
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise NotFound(f"set '{path.stem}' was deleted meanwhile: put it again, or ask without it") from None
    except OSError as error:
        raise BundleError(f"{path} cannot be read ({error.strerror}): put the set again") from error
    packed, checksum = content[HEADER_BYTES:], content[len(MAGIC) : HEADER_BYTES]
    damage = BundleError(f"{path} is no set of classes, or was damaged: put the set again")
    if not content.startswith(MAGIC) or zlib.crc32(packed) != int.from_bytes(checksum, "little"):
        raise damage
    try:
        return np.array(bitmaps.BitMap.deserialize(packed).to_array(), np.int64)
    except (ValueError, IndexError) as error:  # the library's, of a bitmap that lies under a checksum that is right
        raise damage from error


def write_set(folder: Path, name: str, content: bytes) -> None:
    """Write the file of a set, whole or not at all, before this returns; raises OSError."""
    folder.mkdir(exist_ok=True)
    with NamedTemporaryFile(dir=folder, prefix=".", suffix=SUFFIX, delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
            os.replace(file.name, make_path(folder, name))
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise
    flush_folder(folder)


def drop_leftovers(folder: Path) -> None:
    """Remove the files that killed processes have not written to their end; raises OSError."""
    for path in folder.glob(f".*{SUFFIX}"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > LEFTOVER_SECONDS:
                path.unlink()


def delete_set(folder: Path, name: str) -> bool:
    """Remove the file of a set; whether there was one. Raises OSError."""
    try:
        make_path(folder, name).unlink()
    except (FileNotFoundError, NotADirectoryError):
        return False
    flush_folder(folder)
    return True
