"""Compiling by numba; what it makes is kept on disk until any source in this folder changes.

numba itself looks at the file of the function that is called, not at those whose functions that one calls
(github.com/numba/numba/issues/1833): a new version of the package would go on with old loops.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.misc.appdirs import AppDirs

SOURCES = Path(__file__).parent


def stamp() -> str:
    """Names the state of all sources here."""
    digest = sha256()
    for path in sorted(SOURCES.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def writable(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made if it has to be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def folder_to_keep() -> str | None:
    """Below `NUMBA_CACHE_DIR` if it is set, beside the sources or in the user's own cache: the first that can be."""
    places = config.CACHE_DIR, SOURCES / "__pycache__", AppDirs("numba", appauthor=False).user_cache_dir
    name = f"shortlist-{stamp()}"
    folders = (Path(place) / name for place in places if place)
    return next((str(folder) for folder in folders if writable(folder)), None)


KEPT = folder_to_keep()


def compiled(function: Callable[..., Any], *, fastmath: Any = False) -> Any:
    """`function` by numba, without the interpreter's lock; kept on disk where there is a folder for that."""
    before = config.CACHE_DIR
    config.CACHE_DIR = KEPT or before
    try:
        return njit(nogil=True, fastmath=fastmath, cache=KEPT is not None)(function)
    finally:
        config.CACHE_DIR = before
