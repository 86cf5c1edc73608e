"""A Unix socket that the server listens on: who may connect is for the file system to say."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from shortlist.errors import BadInput

SOCKET_MODE = 0o660  # its owner and its group may connect
PROBE_SECONDS = 1.0  # for a server that listens there already to take a connection


@contextlib.contextmanager
def listen_on_path(path: Path, backlog: int) -> Iterator[socket.socket]:
    """A socket that accepts connections; its file is gone at the end, unless another server's took its place.

    What a server that was killed left is replaced. Raises BadInput.
    """
    try:
        remove_stale_socket(path)
        listener = open_socket(path, backlog)
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"cannot listen on {path} ({reason}): choose another path with --unix-socket") from None
    with listener:
        identity = identify(path)
        try:
            yield listener
        finally:
            if identify(path) == identity:
                path.unlink()


def remove_stale_socket(path: Path) -> None:
    """Remove a socket that nobody listens on any more; raises BadInput for one in use and for any other file."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise BadInput(f"{path} is there and is no socket: choose another path with --unix-socket")
    with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(BlockingIOError):  # its backlog is full
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
    raise BadInput(f"{path} is in use by another server: choose another path with --unix-socket")


def open_socket(path: Path, backlog: int) -> socket.socket:
    """Listen; nobody can connect before the file has its mode. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(str(path))
        path.chmod(SOCKET_MODE)
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener


def identify(path: Path) -> tuple[int, int, int] | None:
    """What tells a file from any other of the same path, None where there is none; numbers of files are used again."""
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def format_unix_url(path: Path) -> str:
    """The URL by which clients ask there."""
    return f"unix://{quote(str(path.absolute()))}"
