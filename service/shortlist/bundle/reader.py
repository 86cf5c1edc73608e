"""Reading a bundle: its files are hashed, and its arrays and graphs checked, before they are used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from safetensors.numpy import load_file

from shortlist.core.checks import require_utf8
from shortlist.core.graph_file import GraphFile
from shortlist.errors import BundleError, NotFound

from .array_rules import Array, ArrayRule, Arrays, find_faults
from .array_table import (
    CALIBRATION_FILE,
    CERTIFICATE_FILE,
    INDEX_FILE,
    RAW,
    find_contradiction,
    find_rules,
    list_sizes,
)
from .files import Stamps, are_other_files, check_files, take_stamps
from .graph_table import find_signature
from .manifest import MANIFEST_FILE, read_manifest
from .names import NAME_ROLES, Names
from .repository import find_versions, may_be_bundle
from .settings import PlanSettings

__all__ = ["CALIBRATION_FILE", "CERTIFICATE_FILE", "INDEX_FILE", "Bundle"]

LABELS_FILE = "labels.json"
GRAPHS_FOLDER = "graphs"

Settings = TypeVar("Settings", bound=PlanSettings)


class Bundle:
    """An exported head on disk, opened for reading.

    Whatever a plan reads of it keeps the rules of `array_table` and `graph_table`, or is refused: loops and plans use
    ids, places and shapes as they are.
    """

    def __init__(self, folder: Path, *, verify: bool = True) -> None:
        """Open `folder`; with `verify`, hash every file (about 1 s per GB), and read none that has no hash.

        Raises NotFound when there is no such folder, BadInput when its path is not UTF-8, BundleError when a file is
        missing, cut, edited or a link.
        """
        require_utf8(folder)
        if not folder.is_dir():
            raise NotFound(f"there is no bundle at {folder}: name the folder <name>/<version>")
        check_is_version(folder)
        self.folder, self.verified = folder, verify
        self.manifest = read_manifest(folder)
        self.stamps = take_stamps(folder, self.manifest)  # before they are hashed: a later change is noticed
        check_files(folder, self.manifest, hashes=verify)
        self.sizes = list_sizes(self.manifest)
        self.part_sizes: list[int] = []

    def graph(self, role: str) -> GraphFile:
        """The ONNX graph with this role; the arrays that its sizes follow from have to be read before.

        Raises BundleError where the bundle has none.
        """
        signature = find_signature(role, self.manifest, self.sizes, self.part_sizes)
        if signature is None or role not in self.manifest.graphs:
            raise BundleError(
                f"{self.folder} has no graph '{role}' for its plan {self.manifest.plan} and settings: "
                "export the bundle again"
            )
        return GraphFile(self.folder / self.manifest.graphs[role], signature)

    def late_graph(self, role: str) -> GraphFile:
        """As `graph`, long after the bundle was opened: raises BundleError, too, where a file of it has changed since.

        A graph of another head would answer, and be wrong.
        """
        if (name := self.find_change()) is not None:
            raise BundleError(
                f"{self.folder / name} was written, replaced or removed since it was loaded: load it again"
            )
        return self.graph(role)

    def has_graph(self, role: str) -> bool:
        """Whether the bundle was exported with this graph."""
        return role in self.manifest.graphs

    def settings(self, kind: type[Settings]) -> Settings:
        """The plan's settings, which are of this kind."""
        settings = self.manifest.settings
        assert isinstance(settings, kind), f"a plan reads settings of its own kind, not {type(settings).__name__}"
        return settings

    @property
    def finishing(self) -> tuple[float, float | None]:
        """The logit scale and soft-cap of the scores of its rows: a trained head has neither, whatever dense has."""
        manifest = self.manifest
        return (manifest.logit_scale, manifest.soft_cap) if manifest.reference == "dense" else (1.0, None)

    def has_arrays(self, *roles: str) -> bool:
        """Whether the bundle was exported with raw arrays of all these roles."""
        return all(role in self.manifest.arrays for role in roles)

    def map_array(self, role: str) -> Array:
        """The raw array of this role, shared in memory with whoever maps its file.

        Written to, it changes for the caller alone. Raises BundleError when the file does not have the size that the
        manifest says, or the array breaks its rule.
        """
        entry = self.manifest.arrays[role]
        path = self.folder / entry.file
        if not path.is_file() or path.stat().st_size != entry.size:
            raise BundleError(f"{path} is not the {entry.dtype} array {list(entry.shape)} of '{role}': export it again")
        array = np.asarray(np.memmap(path, entry.dtype, "c", shape=entry.shape))
        fault = RAW[role].find_fault(array, self.sizes)
        if fault is not None:
            raise BundleError(f"{path} is the array '{role}', which {fault}: export the bundle again")
        return array

    def tensors(self, name: str) -> dict[str, Array]:
        """The tensors of one safetensors file; raises BundleError where they break a rule.

        Of what plans read, none that has no rule; the calibration's are the evaluation's own.
        """
        path = self.folder / name
        if self.verified and name not in self.manifest.files:
            raise BundleError(f"{path} has no hash in the manifest: export the bundle again")
        try:
            arrays = load_file(path)
        except Exception as error:  # numpy's as well as safetensors', for types that only the latter knows
            raise BundleError(explain_unreadable(path)) from error
        rules = find_rules(name, self.manifest.plan)
        self.check_arrays(name, arrays, rules)
        return {key: array for key, array in arrays.items() if key in rules or name == CALIBRATION_FILE}

    def check_arrays(self, name: str, arrays: Arrays, rules: Mapping[str, ArrayRule]) -> None:
        """Raise BundleError where the arrays of the file `name` break a rule, and remember the sizes that they say."""
        fault = find_faults(arrays, rules, self.sizes)
        fault = fault or find_contradiction(name, arrays, self.manifest, self.sizes)
        if fault is not None:
            raise BundleError(f"{self.folder / name} {fault}: export the bundle again")
        if name == INDEX_FILE and "offsets" in arrays:
            self.part_sizes = np.diff(arrays["offsets"]).tolist()

    def find_change(self) -> str | None:
        """The path of the first file that was written, replaced or removed since the bundle was opened, or None.

        A whole copy in its place is no change: a link to the repository may have been turned to the next release of it.
        """
        now = take_stamps(self.folder, self.manifest)
        if self.is_copy(now):
            self.stamps = now
        return next((name for name, stamp in self.stamps.items() if now[name] != stamp), None)

    def is_copy(self, stamps: Stamps) -> bool:
        """Whether all files are other ones than those that were opened, and hold the same, by their hashes."""
        if not are_other_files(self.stamps, stamps):
            return False
        try:
            if read_manifest(self.folder).digest != self.manifest.digest:
                return False
            check_files(self.folder, self.manifest, hashes=True)
        except BundleError:
            return False
        return True

    def names(self) -> Names | None:
        """The names of classes, mapped, or None where the bundle has none; raises BundleError."""
        return Names(*map(self.map_array, NAME_ROLES)) if self.has_arrays(*NAME_ROLES) else None

    def labels(self) -> list[str] | None:
        """V printable names, or None where the bundle has none; raises BundleError where they are not that."""
        if LABELS_FILE not in self.manifest.files:
            return None
        path, classes = self.folder / LABELS_FILE, self.manifest.classes
        try:
            labels = json.loads(path.read_bytes().decode("utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise BundleError(f"{path} cannot be read ({type(error).__name__}): export the bundle again") from error
        if not isinstance(labels, list) or len(labels) != classes or not all(type(label) is str for label in labels):
            raise BundleError(f"{path} is not a list of {classes} texts, one for each class: export the bundle again")
        return labels


def parse_version_folder(folder: Path) -> int:
    """The version number of `<name>/<version>`; raises BundleError when it is not a positive integer."""
    if not folder.name.isascii() or not folder.name.isdigit() or int(folder.name) < 1 or folder.name[0] == "0":
        raise BundleError(f"{folder}: the last part must be a version, a whole number from 1, as in repo/lm/1")
    return int(folder.name)


def check_is_version(folder: Path) -> None:
    """Raise BundleError for a folder that holds the versions of a model, and is none of them."""
    versions = {} if may_be_bundle(folder) else find_versions(folder)
    if versions:
        newest = versions[max(versions)]
        raise BundleError(f"{folder} is not a bundle: it has no {MANIFEST_FILE}; name a version, as in {newest}")


def explain_unreadable(path: Path) -> str:
    """Why a file cannot be read: as the system says, which the library that reads it does not; else it is damaged."""
    try:
        path.open("rb").close()
    except OSError as error:
        return f"{path} cannot be read ({error.strerror}): mend that, then open the bundle again"
    return f"{path} cannot be read: export the bundle again"
