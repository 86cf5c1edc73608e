"""A copy of a bundle that may be changed in any way, and is sealed as if it had been exported so."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save
from shortlist.bundle.files import sha256
from shortlist.bundle.manifest import MANIFEST_FILE, compute_digest

Arrays = dict[str, np.ndarray]


class Draft:
    """Changes to the bundle at `source`, which itself stays as it is.

    content: the manifest's JSON. files: those changed, with their bytes; None for one that is deleted. notes: what was
    done, for a report.
    """

    def __init__(self, source: Path) -> None:
        self.source = source
        self.content: dict[str, Any] = json.loads((source / MANIFEST_FILE).read_bytes())
        self.files: dict[str, bytes | None] = {}
        self.sizes: dict[str, int] = {}
        self.notes: list[str] = []

    @property
    def keeps_graphs(self) -> bool:
        """Whether graphs and weights are those of the source: what is inside of these no load can check."""
        original = json.loads((self.source / MANIFEST_FILE).read_bytes())
        same_roles = all(self.content.get(kind) == original[kind] for kind in ("graphs", "arrays"))
        return same_roles and not any(name.endswith((".onnx", ".bin")) for name in self.files)

    def list_files(self, *suffixes: str) -> list[str]:
        """Names of the files of these kinds that are there."""
        names = [name for name in self.content["files"] if name.endswith(suffixes)]
        return [name for name in names if self.files.get(name, b"") is not None]

    def read(self, name: str) -> bytes:
        """A file's bytes as they are by now."""
        changed = self.files.get(name)
        return (self.source / name).read_bytes() if changed is None else changed

    def read_arrays(self, name: str) -> Arrays:
        """The arrays of a safetensors file that was not changed before."""
        return dict(load_file(self.source / name))

    def write_arrays(self, name: str, arrays: Arrays) -> None:
        self.files[name] = save({key: np.ascontiguousarray(array) for key, array in arrays.items()})

    def write(self, folder: Path) -> None:
        """Write the bundle to `folder`, sealed."""
        shutil.rmtree(folder, ignore_errors=True)
        for name in self.content_files():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            changed = self.files.get(name, ...)
            if changed is ...:
                shutil.copyfile(self.source / name, path)
            elif changed is not None:
                path.write_bytes(changed)
        self.seal(folder)

    def content_files(self) -> list[str]:
        """Names of the source's files."""
        return list(json.loads((self.source / MANIFEST_FILE).read_bytes())["files"])

    def seal(self, folder: Path) -> None:
        """Write the manifest with hashes of the files that were changed, and its digest."""
        entries = self.content.get("files")
        for name, changed in self.files.items():
            if changed is not None and isinstance(entries, dict) and name in entries:
                entries[name] = {"size": len(changed), "sha256": sha256(folder / name)}
        for name, size in self.sizes.items():
            if isinstance(entries, dict) and name in entries:
                entries[name] = entries[name] | {"size": size}
        self.content["digest"] = compute_digest(self.content)
        (folder / MANIFEST_FILE).write_text(json.dumps(self.content), "utf-8")
