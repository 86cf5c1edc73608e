"""The sockets that a server listens on: a port, and a Unix socket, of which the file system says who may connect."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote

from shortlist.errors import BadInput
from shortlist.server.settings import Settings

BACKLOG = 2048  # connections that wait to be accepted
MAX_UNSENT_BYTES = 128 << 10  # of a connection, that the system holds: what a client does not read stays with us
SOCKET_MODE = 0o660  # its owner and its group may connect
PROBE_SECONDS = 1.0  # for a server that listens there already to take a connection


def open_listeners(settings: Settings, stack: contextlib.ExitStack) -> list[socket.socket]:
    """The sockets to listen on, which `stack` closes; raises BadInput."""
    listeners = []
    if settings.tcp:
        listeners.append(stack.enter_context(listen(settings.host, settings.port)))
    if settings.unix_socket is not None:
        listeners.append(stack.enter_context(listen_on_path(settings.unix_socket, BACKLOG)))
    return listeners


def announce(listeners: Iterable[socket.socket], *, tls: bool) -> None:
    """Say on stderr where to reach the server, once it handles signals: who reads that may send one at once.

    A disk that is full, or a reader that has ended, keeps no server from serving, as with every line of the log.
    """
    for listener in listeners:
        url = format_url(listener, tls=tls)
        with contextlib.suppress(OSError):
            print(f"listening on {url}\n", end="", file=sys.stderr, flush=True)  # noqa: T201  # at once, beside logs


def listen(host: str, port: int) -> socket.socket:
    """A socket that accepts connections; port 0 takes a free one. Raises BadInput."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, number)
    except (OSError, UnicodeError) as error:  # UnicodeError: no name of a host, as in a..b
        raise BadInput(explain_refusal(host, port, error)) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)  # its connections', too
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise BadInput(explain_refusal(host, port, error)) from None
    return listener


def explain_refusal(host: str, port: int, error: OSError | UnicodeError) -> str:
    """Why the address cannot be listened on, and how to mend it."""
    number = getattr(error, "errno", None)
    if number == errno.EADDRINUSE:
        return f"port {port} on {host} is in use: choose another with --port"
    if number == errno.EACCES:
        return f"port {port} on {host} needs more rights than this user has: choose one over 1023 with --port"
    reason = getattr(error, "strerror", None) or error
    return f"{host} is no address of this machine ({reason}): choose another with --host"


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


def format_url(listener: socket.socket, *, tls: bool) -> str:
    """The URL by which clients ask a listening socket."""
    if listener.family == socket.AF_UNIX:
        return f"unix://{quote(str(Path(listener.getsockname()).absolute()))}"
    host, port = listener.getsockname()[:2]
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{'https' if tls else 'http'}://{place}"
