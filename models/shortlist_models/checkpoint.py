"""A training's state on disk, so that a training that was interrupted goes on where it stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

FINGERPRINT = "fingerprint"


def save_checkpoint(path: Path | None, fingerprint: str, state: dict[str, Any]) -> None:
    """Write `state` (tensors, numbers, strings and containers of them) to `path`, whole or not at all.

    fingerprint: the options and sizes of the training; only a training of the same ones takes the state up.
    """
    if path is None:
        return
    partial = path.with_name(path.name + ".partial")
    torch.save({FINGERPRINT: fingerprint} | state, partial)
    partial.replace(path)


def load_checkpoint(path: Path | None, fingerprint: str) -> dict[str, Any] | None:
    """The state at `path`, or None where there is no file or another training wrote it."""
    if path is None or not path.is_file():
        return None
    state: dict[str, Any] = torch.load(path, weights_only=True)
    return state if state.get(FINGERPRINT) == fingerprint else None
