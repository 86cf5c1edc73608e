"""The files of a bundle: each is a plain file in the bundle's folder, hashed, and noticed when it changes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from shortlist.errors import BundleError

from .manifest import MANIFEST_FILE, FileEntry, Manifest

REPORT_FOLDER = "report"
WRITE_BITS = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


class Stamp(NamedTuple):
    """What changes when a file is written or replaced: its inode, its size in bytes, its time of change in ns."""

    inode: int
    size: int
    changed_ns: int


Stamps = Mapping[str, Stamp | None]  # path below the folder -> None where there is no such file


def sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def walk_tree(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Everything below `folder`, folders too; links are not followed."""
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry
            if entry.is_dir(follow_symlinks=False):
                yield from walk_tree(Path(entry.path))


def refuse_links(folder: Path) -> None:
    """Raise BundleError at anything below `folder` that is no folder and no plain file with a single name.

    A link leads out of the bundle, or lets its content change from elsewhere. `folder` itself may be one: where a
    repository keeps its versions is its owner's affair.
    """
    for entry in walk_tree(folder):
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            raise BundleError(f"{entry.path} is a link, and a bundle holds files alone: copy it with `cp -rL`")
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            raise BundleError(f"{entry.path} has a second name (a hard link), so that it may change: copy it")
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise BundleError(f"{entry.path} is no plain file: export the bundle again")


def check_files(folder: Path, manifest: Manifest, *, hashes: bool) -> None:
    """Raise BundleError at the first file that is missing or cut short; with `hashes`, edited, unhashed or a link."""
    try:
        if hashes:
            require_hashes(folder, manifest)
            refuse_links(folder)
        for name, entry in manifest.files.items():
            check_size(folder / name, entry)
        if hashes:
            check_hashes(folder, manifest)
    except OSError as error:
        mending = "give this user access to its files" if isinstance(error, PermissionError) else "mend that"
        raise BundleError(f"{folder} cannot be read ({error.strerror}): {mending}") from error


def require_hashes(folder: Path, manifest: Manifest) -> None:
    """Raise BundleError where the manifest names a file whose hash it does not hold."""
    named = {*manifest.graphs.values(), *(array.file for array in manifest.arrays.values())}
    unsealed = sorted(named - manifest.files.keys())
    if unsealed:
        raise BundleError(f"{folder / MANIFEST_FILE} has no hash of {unsealed[0]}: export the bundle again")


def check_size(path: Path, entry: FileEntry) -> None:
    """Raise BundleError unless there is a file of this size."""
    if not path.is_file():
        raise BundleError(f"{path} is missing: export the bundle again")
    size = path.stat().st_size
    if size != entry.size:
        raise BundleError(f"{path} has {size} bytes instead of {entry.size}: it was cut or edited, export it again")


def check_hashes(folder: Path, manifest: Manifest) -> None:
    """Raise BundleError at the first file whose SHA-256 differs; several threads hash, the largest files first."""
    names = sorted(manifest.files, key=lambda name: -manifest.files[name].size)
    with ThreadPoolExecutor() as pool:
        digests = dict(zip(names, pool.map(sha256, [folder / name for name in names]), strict=True))
    for name, entry in manifest.files.items():
        if digests[name] != entry.sha256:
            raise BundleError(f"{folder / name} was edited or damaged: its SHA-256 differs; export the bundle again")


def take_stamps(folder: Path, manifest: Manifest) -> Stamps:
    """The stamps of the manifest and of every file that it names."""
    return {name: take_stamp(folder / name) for name in (MANIFEST_FILE, *manifest.files)}


def take_stamp(path: Path) -> Stamp | None:
    """The stamp of a file; None where it is missing or cannot be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns)


def are_other_files(before: Stamps, now: Stamps) -> bool:
    """Whether every file is there, and is none that was there before."""
    pairs = [(before[name], stamp) for name, stamp in now.items()]
    return all(one is not None and other is not None and one.inode != other.inode for one, other in pairs)


def protect(folder: Path) -> None:
    """Take the write permission from every file below `folder`, but not from the report, which may be made anew.

    Folders keep theirs, so that whoever owns a bundle can delete it.
    """
    for path in folder.rglob("*"):
        if path.is_file() and path.relative_to(folder).parts[0] != REPORT_FOLDER:
            path.chmod(path.stat().st_mode & ~WRITE_BITS)


def flush_folder(folder: Path) -> None:
    """Wait until the names of a folder's files are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Do something while no other thread or process of this machine has locked the same folder; raises OSError."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
