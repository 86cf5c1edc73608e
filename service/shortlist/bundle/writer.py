"""Writing a bundle: all of it or nothing, sealed by the hash of every file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from shortlist.errors import BundleError, VersionExists

from .files import REPORT_FOLDER, protect, sha256
from .manifest import MANIFEST_FILE, FileEntry, Manifest
from .reader import parse_version_folder

UNFINISHED_PREFIX = ".unfinished-"
LOCK_FILE = "lock"


@contextlib.contextmanager
def write_version(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder` in one rename when the block ends, and vanishes when it fails.

    Its files lose their write permission: whatever opens one to change it is refused.
    A killed process leaves only a hidden folder, which is never served and which the next export of the model removes.
    Raises VersionExists when `folder` is there, BundleError when the disk refuses.
    """
    parse_version_folder(folder)
    if folder.exists():
        raise make_version_error(folder)
    try:
        with make_parent_folders(folder), make_workplace(folder) as place:
            content = place / folder.name
            content.mkdir()
            yield content
            sync(content)
            protect(content)
            publish(content, folder)
    except OSError as error:
        short = "requested and" in str(error)  # numpy tells no more of a write that found no room
        reason = error.strerror or (f"no room, {error}" if short else error)
        raise BundleError(f"{folder} cannot be written ({reason}): nothing was left behind") from error


def make_version_error(folder: Path) -> VersionExists:
    """Make the error for a version that exists already."""
    return VersionExists(f"{folder} exists and versions are immutable: export to the next version")


def publish(content: Path, folder: Path) -> None:
    """Rename `content` to `folder`; raises VersionExists where another export of the same version was faster."""
    try:
        content.rename(folder)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise make_version_error(folder) from None
        raise


@contextlib.contextmanager
def make_parent_folders(folder: Path) -> Iterator[None]:
    """Make the folders that `folder` lies in; of those made, the ones still empty at the end go away."""
    missing = [parent for parent in folder.parents if not parent.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for parent in missing:
            with contextlib.suppress(OSError):
                parent.rmdir()


@contextlib.contextmanager
def make_workplace(folder: Path) -> Iterator[Path]:
    """Make a hidden folder beside `folder`, locked as long as the process lives, and remove it at the end."""
    remove_unfinished(folder.parent)
    place = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED_PREFIX}{folder.name}-", dir=folder.parent))
    try:
        with (place / f"{LOCK_FILE}.new").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            Path(file.name).rename(place / LOCK_FILE)  # so that nobody ever sees it unlocked
            yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def remove_unfinished(parent: Path) -> None:
    """Delete what killed exports of any version left; an export that still runs keeps its own."""
    for left in parent.glob(f"{UNFINISHED_PREFIX}*"):
        if is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)


def is_abandoned(place: Path) -> bool:
    """Whether the process that locked this folder has ended.

    Its lock tells, not a process id: exports in two containers may have the same id.
    """
    try:
        with (place / LOCK_FILE).open("r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sync(folder: Path) -> None:
    """Flush every file of `folder` to the disk, so that the rename cannot outlive the contents."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def seal(folder: Path, manifest: Manifest) -> Manifest:
    """Write manifest.json with the size and SHA-256 of every file but report/, and its own digest."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = {path: path.relative_to(folder).as_posix() for path in paths}
    files = {
        name: FileEntry(size=path.stat().st_size, sha256=sha256(path))
        for path, name in names.items()
        if name != MANIFEST_FILE and not name.startswith(f"{REPORT_FOLDER}/")
    }
    sealed = manifest.model_copy(update={"files": files}).with_digest()
    (folder / MANIFEST_FILE).write_text(sealed.model_dump_json(indent=1) + "\n", "utf-8")
    return sealed
