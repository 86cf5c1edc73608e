"""How long work reports its progress: by calling a function with (stage, units done, units in all)."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def quiet(stage: str, done: int, total: int) -> None:
    """Report to nobody: the default of every `progress` argument."""
    del stage, done, total
