"""Threads that ask a server while a context is open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Self


class AskingThreads:
    """Starts threads as the context is entered, and ends them as it is left: each goes on until `stopping` is set."""

    def __init__(self, jobs: Sequence[Callable[[], None]]) -> None:
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=job) for job in jobs]

    def __enter__(self) -> Self:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join()
