"""Compilation by numba, cached on disk until any source of `shortlist.kernels` changes.

numba's own cache looks at the file of the called function alone, not at the files of functions that it calls
(github.com/numba/numba/issues/1833): after an upgrade of the package it would go on using old loops.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from numba import config, njit
from numba.misc.appdirs import AppDirs

SOURCE_FOLDER = Path(__file__).parent.parent


def hash_sources() -> str:
    """Return a hash of all sources of the compiled loops, as a name for their cache."""
    digest = sha256()
    for path in sorted(SOURCE_FOLDER.rglob("*.py")):
        digest.update(str(path.relative_to(SOURCE_FOLDER)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def is_writable(folder: Path) -> bool:
    """True if files can be created in `folder`, which is created where it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def choose_cache_folder() -> str | None:
    """Choose the first writable folder: below NUMBA_CACHE_DIR, beside the sources, in the user's cache, else None.

    Caches of other versions of the sources, some 4 MB each, are not removed: another process may be using them.
    """
    places = config.CACHE_DIR, SOURCE_FOLDER / "__pycache__", AppDirs("numba", appauthor=False).user_cache_dir
    name = f"shortlist-{hash_sources()}"
    folders = (Path(place) / name for place in places if place)
    return next((str(folder) for folder in folders if is_writable(folder)), None)


CACHE_FOLDER = choose_cache_folder()


def compile_loop(function: Callable[..., Any], *, fastmath: Any = False) -> Any:
    """Compile `function` by numba, to run without the interpreter's lock; cached if there is a folder for that.

    fastmath: which liberties LLVM may take with float arithmetic, as in numba.njit.
    """
    before = config.CACHE_DIR
    config.CACHE_DIR = CACHE_FOLDER or before
    try:
        return njit(nogil=True, fastmath=fastmath, cache=CACHE_FOLDER is not None)(function)
    except RuntimeError:  # as when the disk has become full
        return njit(nogil=True, fastmath=fastmath)(function)
    finally:
        config.CACHE_DIR = before
