"""A bundle on disk: written whole or not at all, checked before use, never changed."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load_file

from shortlist.errors import BundleError, NotFound

from .manifest import Manifest, read_manifest
from .settings import PlanSettings

REPORT_FOLDER = "report"
CALIBRATION_FILE = "calibration.safetensors"
LABELS_FILE = "labels.json"
INDEX_FILE = "index.safetensors"
GRAPHS_FOLDER = "graphs"
CERTIFICATE_FILE = "certificate.safetensors"

Settings = TypeVar("Settings", bound=PlanSettings)


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

    def settings(self, kind: type[Settings]) -> Settings:
        """The plan's settings, which are of this kind."""
        settings = self.manifest.settings
        assert isinstance(settings, kind), f"a plan reads settings of its own kind, not {type(settings).__name__}"
        return settings

    def has_arrays(self, *roles: str) -> bool:
        """Whether the bundle was exported with raw arrays of all these roles."""
        return all(role in self.manifest.arrays for role in roles)

    def map_array(self, role: str) -> npt.NDArray[Any]:
        """The raw array of this role, shared in memory with whoever maps its file.

        Written to, it changes for the caller alone. Raises BundleError when the file does not have the size that the
        manifest says.
        """
        entry = self.manifest.arrays[role]
        path = self.folder / entry.file
        if not path.is_file() or path.stat().st_size != entry.size:
            raise BundleError(f"{path} is not the {entry.dtype} array {list(entry.shape)} of '{role}': export it again")
        return np.asarray(np.memmap(path, entry.dtype, "c", shape=entry.shape))

    def tensors(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """All tensors of one safetensors file of the bundle."""
        path = self.folder / name
        try:
            return dict(load_file(path))
        except (OSError, SafetensorError) as error:
            raise BundleError(f"{path} cannot be read: export the bundle again") from error

    def labels(self) -> list[str] | None:
        """V printable names, or None where the bundle has none."""
        if LABELS_FILE not in self.manifest.files:
            return None
        labels: list[str] = json.loads((self.folder / LABELS_FILE).read_text("utf-8"))
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


def parse_version_folder(folder: Path) -> int:
    """The version number of `<name>/<version>`; raises BundleError when it is not a positive integer."""
    if not folder.name.isascii() or not folder.name.isdigit() or int(folder.name) < 1 or folder.name[0] == "0":
        raise BundleError(f"{folder}: the last part must be a version, a whole number from 1, as in repo/lm/1")
    return int(folder.name)
