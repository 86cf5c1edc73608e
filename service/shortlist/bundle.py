"""A bundle on disk: written whole or not at all, checked before use, never changed."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from .errors import BundleError, NotFound, VersionExists
from .manifest import FILE_NAME, FileEntry, Manifest, read_manifest

REPORT = "report"
CALIBRATION = "calibration.safetensors"
LABELS = "labels.json"
INDEX = "index.safetensors"
GRAPHS = "graphs"
CERTIFICATE = "certificate.safetensors"
UNFINISHED = ".unfinished-"
LOCK = "lock"


class Bundle:
    """An exported head on disk, opened for reading."""

    def __init__(self, folder: Path, *, verify: bool = True) -> None:
        """Open `folder`; with `verify`, hash every file (about 1 s per GB).

        Raises NotFound when there is no such folder, BundleError when a file is missing, cut or edited.
        """
        if not folder.is_dir():
            raise NotFound(f"there is no bundle at {folder}: name the folder <name>/<version>")
        self.folder = folder
        self.manifest = read_manifest(folder)
        check_files(folder, self.manifest, hashes=verify)

    def graph(self, role: str) -> Path:
        """Path of the ONNX graph with this role."""
        return self.folder / self.manifest.graphs[role]

    def has_graph(self, role: str) -> bool:
        """Whether the bundle was exported with this graph."""
        return role in self.manifest.graphs

    def tensors(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """All tensors of one safetensors file of the bundle."""
        path = self.folder / name
        try:
            return dict(load_file(path))
        except (OSError, SafetensorError) as error:
            raise BundleError(f"{path} cannot be read: export the bundle again") from error

    def labels(self) -> list[str] | None:
        """V printable names, or None where the bundle has none."""
        if LABELS not in self.manifest.files:
            return None
        labels: list[str] = json.loads((self.folder / LABELS).read_text("utf-8"))
        return labels


def sha256(path: Path) -> str:
    """SHA-256 of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(folder: Path, manifest: Manifest, *, hashes: bool) -> None:
    """Raise BundleError at the first file that is missing, cut short or edited."""
    for name, entry in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise BundleError(f"{path} is missing: export the bundle again")
        if path.stat().st_size != entry.size:
            raise BundleError(
                f"{path} has {path.stat().st_size} bytes instead of {entry.size}: it was cut or edited, export it again"
            )
        if hashes and sha256(path) != entry.sha256:
            raise BundleError(f"{path} was edited or damaged: its SHA-256 differs; export the bundle again")


def version_of(folder: Path) -> int:
    """The version number of `<name>/<version>`; raises BundleError when it is not a positive integer."""
    if not folder.name.isascii() or not folder.name.isdigit() or int(folder.name) < 1 or folder.name[0] == "0":
        raise BundleError(f"{folder}: the last part must be a version, a whole number from 1, as in repo/lm/1")
    return int(folder.name)


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[Path]:
    """A temporary folder that becomes `folder` in one rename when the block ends, and vanishes when it fails.

    A killed process leaves only a hidden folder, which is never served and which the next export removes.
    Raises VersionExists when `folder` is there, BundleError when the disk refuses.
    """
    version_of(folder)
    if folder.exists():
        raise taken(folder)
    try:
        with folders_above(folder), workplace(folder) as place:
            content = place / folder.name
            content.mkdir()
            yield content
            sync(content)
            publish(content, folder)
    except OSError as error:
        raise BundleError(f"{folder} cannot be written ({error.strerror or error}): nothing was left behind") from error


def taken(folder: Path) -> VersionExists:
    """What to say where the version is there."""
    return VersionExists(f"{folder} exists and versions are immutable: export to the next version")


def publish(content: Path, folder: Path) -> None:
    """Rename; raises VersionExists where another export of the same version was faster."""
    try:
        content.rename(folder)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise taken(folder) from None
        raise


@contextlib.contextmanager
def folders_above(folder: Path) -> Iterator[None]:
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
def workplace(folder: Path) -> Iterator[Path]:
    """A hidden folder beside `folder` for this call alone, gone at the end; locked as long as the process lives."""
    remove_unfinished(folder.parent, folder.name)
    place = Path(tempfile.mkdtemp(prefix=f"{UNFINISHED}{folder.name}-", dir=folder.parent))
    try:
        with (place / f"{LOCK}.new").open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            Path(file.name).rename(place / LOCK)  # so that nobody ever sees it unlocked
            yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def remove_unfinished(parent: Path, version: str) -> None:
    """Delete what killed exports of this version left; an export that still runs keeps its own."""
    for left in parent.glob(f"{UNFINISHED}{version}-*"):
        if is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)


def is_abandoned(place: Path) -> bool:
    """Whether the process that locked this folder has ended.

    Not told by its process id: exports in two containers may have the same one.
    """
    try:
        with (place / LOCK).open("r+b") as file:
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
        if name != FILE_NAME and not name.startswith(f"{REPORT}/")
    }
    sealed = manifest.model_copy(update={"files": files}).sealed()
    (folder / FILE_NAME).write_text(sealed.model_dump_json(indent=1) + "\n", "utf-8")
    return sealed
