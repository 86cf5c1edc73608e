"""Results on disk, named by hashes of what they were computed from, so that a search resumes where it stopped."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from shortlist.bundle.manifest import FORMAT_VERSION
from shortlist.bundle.writer import make_workplace
from shortlist.errors import BadInput

from shortlist_exporter.core.provenance import list_versions

CACHE_VERSION = 6  # raise when what is computed, or how, changes

Tensors = dict[str, np.ndarray[Any, Any]]


class Cache:
    """A folder. Everything in it is whole, and may be deleted at any time between two searches."""

    def __init__(self, folder: Path) -> None:
        """Raises BadInput where the folder cannot be made, as every method does that cannot write there."""
        self.folder = folder
        self.versions = list_versions()
        with self.explain_refusals():
            folder.mkdir(parents=True, exist_ok=True)

    def key(self, *parts: object) -> str:
        """A hash of `parts` (JSON values), the installed packages' versions and the format of bundles."""
        parts_json = json.dumps([CACHE_VERSION, FORMAT_VERSION, self.versions, *parts], sort_keys=True)
        return hashlib.sha256(parts_json.encode()).hexdigest()[:20]

    def value(self, key: str) -> Any | None:
        """A stored JSON value, or None."""
        try:
            return json.loads((self.folder / f"{key}.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None

    def keep_value(self, key: str, value: Any) -> None:
        self.keep_bytes(f"{key}.json", json.dumps(value).encode())

    def tensors(self, key: str) -> Tensors | None:
        try:
            return dict(load_file(self.folder / f"{key}.safetensors"))
        except (OSError, SafetensorError):
            return None

    def keep_tensors(self, key: str, tensors: Tensors) -> None:
        self.keep_bytes(f"{key}.safetensors", save(tensors))

    def keep_bytes(self, name: str, content: bytes) -> None:
        """Write a file, whole or not at all."""
        with self.make(name) as path:
            path.write_bytes(content)

    @contextlib.contextmanager
    def make(self, name: str) -> Iterator[Path]:
        """A path that becomes `name` in the folder when the block ends, and vanishes when it fails."""
        with self.explain_refusals(), make_workplace(self.folder / name) as place:
            yield place / name
            with contextlib.suppress(OSError):  # another search was faster: what it made is the same
                (place / name).rename(self.folder / name)

    @contextlib.contextmanager
    def explain_refusals(self) -> Iterator[None]:
        """Turn what the system refuses into BadInput: it is the cache that fails, not the bundle that is exported."""
        try:
            yield
        except OSError as error:
            raise BadInput(
                f"the cache {self.folder} cannot be written ({error.strerror or error}): "
                "make room there, or name another folder by --cache"
            ) from error

    def share(self, file: Path) -> None:
        """Make `file` one with the first file of the same name and content here, so that the disk holds it once."""
        first = self.folder / f"{hashlib.sha256(file.read_bytes()).hexdigest()[:20]}-{file.name}"
        with contextlib.suppress(OSError):  # a disk without hard links holds it twice
            if first.is_file():
                os.link(first, file.with_suffix(".shared"))
                file.with_suffix(".shared").replace(file)
            else:
                os.link(file, first)


def default_folder() -> Path:
    """`shortlist/tune` in the user's cache folder; raises BadInput for a user who has no home, as in containers."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shortlist" / "tune"
    except RuntimeError:
        raise BadInput("this user has no home folder for the cache: name a folder by --cache") from None
