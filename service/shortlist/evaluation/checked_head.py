"""A head is loaded, and held against its canary before it answers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from shortlist.bundle.reader import Bundle
from shortlist.core.checks import cut
from shortlist.errors import BundleError, ShortlistError, is_lack
from shortlist.head import Head

from .canary import check_canary

log = logging.getLogger(__name__)


class CheckedHead(NamedTuple):
    """A head that passed its canary, and P@k of the calibration's rows."""

    head: Head
    precision: float


@contextlib.contextmanager
def explain_failures(folder: Path) -> Iterator[None]:
    """Turn failures that nobody foresaw, of a bundle or of the runtime, into BundleError: others are served then."""
    try:
        yield
    except ShortlistError:
        raise
    except PermissionError as error:
        raise BundleError(f"{folder} cannot be read ({error.strerror}): give this user access to it") from error
    except Exception as error:
        log.exception("%s could not be loaded", folder)
        reason = f"{type(error).__name__}: {cut(error)}"
        raise BundleError(f"{folder} cannot be served ({reason}): {advise(error)}") from error


def advise(error: Exception) -> str:
    """What to do about it: the bundle is blamed only where the system did not refuse memory, files or threads."""
    if is_lack(error):
        return "give this process more memory, files or threads, and load it again"
    return "export it again"


def open_bundle(folder: Path) -> Bundle:
    """Open a bundle and verify every file; raises ShortlistError, also for failures nobody foresaw."""
    with explain_failures(folder):
        return Bundle(folder)


def load_and_check(bundle: Bundle, device: str | None = None, threads: int | None = None) -> CheckedHead:
    """Load a verified bundle's head and replay its canary; raises ShortlistError, also for failures nobody foresaw."""
    with explain_failures(bundle.folder):
        head = Head(bundle, device, threads)
        return CheckedHead(head, check_canary(head, bundle))
