"""Tasks that nobody waits for: they are kept until they are done, and an error goes to the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Tasks:
    """The tasks of one process."""

    def __init__(self) -> None:
        self.running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine."""
        task = asyncio.create_task(work)
        self.running.add(task)
        task.add_done_callback(self.note_end)
        return task

    def note_end(self, task: asyncio.Task[Any]) -> None:
        """Let go of a task, and log the error that ended it."""
        self.running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a task of this process failed", exc_info=task.exception())

    def cancel(self) -> None:
        """Cancel all."""
        for task in self.running:
            task.cancel()
