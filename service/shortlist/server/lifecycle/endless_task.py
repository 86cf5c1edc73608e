"""Tasks that go on as long as the server does: one that fails is logged, and whoever runs the server is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

log = logging.getLogger(__name__)


def start_endless(work: Coroutine[Any, Any, None], on_fault: Callable[[], None]) -> asyncio.Task[None]:
    """Run a coroutine until it is cancelled. on_fault: called where an error has ended it."""
    task = asyncio.create_task(work)
    task.add_done_callback(partial(note_end, on_fault))
    return task


def note_end(on_fault: Callable[[], None], task: asyncio.Task[None]) -> None:
    """Log the error that has ended a task, and pass it on: a server that lacks one would fail without a word."""
    if not task.cancelled() and task.exception() is not None:
        log.error("a task that the server cannot go on without has failed", exc_info=task.exception())
        on_fault()
