"""Compiled loops in the place of graphs, where numba, the processor and the bundle have what they need.

Each class of loops has `open(bundle, ...)`, which gives None where it cannot serve the bundle. Its module needs numba,
so a plan imports it in the function that it gives to `open_kernel`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from traceback import walk_tb
from typing import TypeVar

Loops = TypeVar("Loops")

COMPILERS = ("numba", "llvmlite")

log = logging.getLogger("shortlist")


def open_kernel(open_loops: Callable[[], Loops | None]) -> Loops | None:
    """The loops that `open_loops` imports and opens; None where it has none, and where numba cannot be imported.

    That is logged once. Any other ImportError is raised.
    """
    try:
        return open_loops()
    except ImportError as error:
        if not is_numba_missing(error):
            raise
        log_missing_numba(str(error))
        return None


def is_numba_missing(error: ImportError) -> bool:
    """True if numba or llvmlite is not installed, or refuses what is, as numba does a numpy that is too new for it."""
    raised_in = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)][-1]
    return error.name in COMPILERS or raised_in.split(".")[0] in COMPILERS


@cache
def log_missing_numba(reason: str) -> None:
    log.info("compiled loops are off, graphs answer in their place: %s", reason)
