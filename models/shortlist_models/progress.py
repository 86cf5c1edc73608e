"""How long work reports its progress: by a function of (stage, units done, units in all). Whether it can go on."""

from __future__ import annotations

import math
from collections.abc import Callable

Progress = Callable[[str, int, int], None]


def quiet(stage: str, done: int, total: int) -> None:
    """Report to nobody: the default of every `progress` argument."""
    del stage, done, total


def check_loss(loss: float, learning_rate: float) -> None:
    """Raise ValueError where a training's `loss` is no finite number, before a checkpoint of it is written."""
    if not math.isfinite(loss):
        raise ValueError(f"the training's loss is {loss:g}: lower the learning rate (now {learning_rate:g})")
