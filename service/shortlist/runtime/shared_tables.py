"""Tables that are laid out at the load, once for all processes of a server that serve the same bundles.

By default every process keeps its own, in large pages. Where a folder is named, the first process that needs a table
writes it there, and all of them map that file: the system then keeps it once, in small pages.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shortlist.errors import StorageFull

FOLDER_PREFIX = "shortlist-tables-"
YOUNG_SECONDS = 10.0  # a folder that was made later may belong to a server that has not locked it yet

log = logging.getLogger(__name__)

Table = TypeVar("Table", bound=npt.NDArray[Any])


class SharedFolder:
    """The folder of this process, None for tables of its own."""

    path: Path | None = None


@contextlib.contextmanager
def make_tables_folder() -> Iterator[Path]:
    """A folder below TMPDIR for the tables of one server, which goes at the end.

    What servers have left there that were killed goes first: else each would leave its tables for good.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):  # one that is in use, another user's, or gone by now
            remove_left_folder(folder)
    with tempfile.TemporaryDirectory(prefix=FOLDER_PREFIX) as name, hold_folder(Path(name)):
        yield Path(name)


def remove_left_folder(folder: Path) -> None:
    """Remove the folder of a server that was killed; raises OSError where one may still use it."""
    with hold_folder(folder):
        if time.time() - folder.stat().st_mtime > YOUNG_SECONDS:
            shutil.rmtree(folder)


@contextlib.contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Hold a folder alone among all servers; raises OSError where another one holds it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def share_tables_in(folder: Path | None) -> None:
    """Share all tables that are laid out from now on with those who share theirs in this folder."""
    SharedFolder.path = folder


def find_folder() -> Path | None:
    """The folder of this process, None from the first time on that it is gone, as by what clears TMPDIR now and then.

    One that somebody else has made in its place is not ours either: whoever writes a table decides on the answers.
    """
    folder = SharedFolder.path
    if folder is not None and not is_ours(folder):
        log.warning("%s is gone: this process lays out tables of its own from now on", folder)
        SharedFolder.path = None
    return SharedFolder.path


def is_ours(folder: Path) -> bool:
    """Whether there is such a folder, and it is this user's."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def share_table(digest: str, name: str, lay_out: Callable[[], Table]) -> Table:
    """The table that `lay_out` returns, or one of the same bytes that another process has laid out.

    digest, name: of the bundle's manifest, and of this table among those of the bundle. A shared table begins at a
    cache line; written to, it changes for the caller alone. Its file goes with the first head that does, for then all
    processes drop that head.
    """
    folder = find_folder()
    if folder is None:
        return lay_out()
    path = folder / f"{digest}-{name}.npy"
    with lock_file(path.with_suffix(".lock")):
        if not path.exists():
            write_table(path, lay_out())
        mapped = np.load(path, mmap_mode="c", allow_pickle=False)
    table: Any = np.asarray(mapped)
    weakref.finalize(mapped, path.unlink, missing_ok=True).atexit = False
    return table  # type: ignore[no-any-return]


def write_table(path: Path, table: npt.NDArray[Any]) -> None:
    """Put a table into a file at once: who is ended meanwhile leaves nothing that others would map.

    Raises StorageFull.
    """
    part = path.with_suffix(f".{os.getpid()}")
    try:
        with part.open("wb") as file:
            np.save(file, table)
        part.rename(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageFull(
            f"a table of {table.nbytes} bytes that processes share cannot be written to {path.parent} "
            f"({error.strerror or 'no room'}): make room there, or name a larger folder by TMPDIR"
        ) from error


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[None]:
    """Hold a file alone among all processes; the system lets go of it for one that is ended."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
