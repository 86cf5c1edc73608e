"""Compiling by numba; what it makes is kept on disk until any source of `shortlist.kernels` changes.

numba itself looks at the file of the function that is called, not at those whose functions that one calls
(github.com/numba/numba/issues/1833): a new version of the package would go on with old loops.
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
    """A name for the state of all sources of the compiled loops."""
    digest = sha256()
    for path in sorted(SOURCE_FOLDER.rglob("*.py")):
        digest.update(str(path.relative_to(SOURCE_FOLDER)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def is_writable(folder: Path) -> bool:
    """Whether files can be made in a folder, which is made if it has to be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def choose_cache_folder() -> str | None:
    """Below `NUMBA_CACHE_DIR` if it is set, beside the sources or in the user's own cache: the first that can be.

    What other states of the sources left, some 4 MB each, is not removed: another process may be using it.
    """
    places = config.CACHE_DIR, SOURCE_FOLDER / "__pycache__", AppDirs("numba", appauthor=False).user_cache_dir
    name = f"shortlist-{hash_sources()}"
    folders = (Path(place) / name for place in places if place)
    return next((str(folder) for folder in folders if is_writable(folder)), None)


CACHE_FOLDER = choose_cache_folder()


def compile_loop(function: Callable[..., Any], *, fastmath: Any = False) -> Any:
    """`function` by numba, without the interpreter's lock; kept on disk where there is a folder for that."""
    before = config.CACHE_DIR
    config.CACHE_DIR = CACHE_FOLDER or before
    try:
        return njit(nogil=True, fastmath=fastmath, cache=CACHE_FOLDER is not None)(function)
    except RuntimeError:  # the disk is full by now, for one
        return njit(nogil=True, fastmath=fastmath)(function)
    finally:
        config.CACHE_DIR = before
