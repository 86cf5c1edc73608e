"""A training's state on disk, so that a training that was interrupted goes on where it stopped."""

from __future__ import annotations

import math
import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FINGERPRINT = "fingerprint"
EARLIER = ".earlier"  # behind the name of a checkpoint that another training took over


def name_training(options: str, *data: Tensor | None) -> str:
    """The fingerprint of a training: its options, and a hash of the values and shapes of what it is fitted to."""
    digest = sha256()
    for tensor in data:
        digest.update(repr(None if tensor is None else tuple(tensor.shape)).encode())
        if tensor is not None:
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return f"{options} {digest.hexdigest()}"


def check_loss(loss: float, learning_rate: float) -> None:
    """Raise ValueError where a training's `loss` is no finite number, before a checkpoint of it is written."""
    if not math.isfinite(loss):
        raise ValueError(f"the training's loss is {loss:g}: lower the learning rate (now {learning_rate:g})")


def save_checkpoint(path: Path | None, fingerprint: str, state: dict[str, Any]) -> None:
    """Write `state` (tensors, numbers, strings and containers of them) to `path`, whole or not at all.

    fingerprint: as of `name_training`; only a training of the same one takes the state up. What another one left is
    kept under the name with `EARLIER` behind it, in place of the state of a third.
    """
    if path is None:
        return
    partial = path.with_name(path.name + ".partial")
    torch.save({FINGERPRINT: fingerprint} | state, partial)
    keep_other_training(path, fingerprint)
    partial.replace(path)


def keep_other_training(path: Path, fingerprint: str) -> None:
    """Move what another training left at `path` aside; what was moved so and is no checkpoint is never replaced."""
    earlier = path.with_name(path.name + EARLIER)
    is_free = not earlier.exists() or read_fingerprint(earlier) is not None
    if path.is_file() and is_free and read_fingerprint(path) != fingerprint:
        path.replace(earlier)


def read_fingerprint(path: Path) -> str | None:
    """Of which training a file is, or None where it is no checkpoint; its tensors stay where they are."""
    try:
        fingerprint = read_state(path, mapped=True).get(FINGERPRINT)
    except ValueError:
        return None
    return fingerprint if isinstance(fingerprint, str) else None


def load_checkpoint(path: Path | None, fingerprint: str) -> dict[str, Any] | None:
    """The state at `path`, its tensors on the CPU, or None where there is no file or another training wrote it.

    Raises ValueError for a file that torch did not write, and where `save_checkpoint` could write none.
    """
    if path is None:
        return None
    if not path.parent.is_dir():
        raise ValueError(f"checkpoint {path} cannot be written: make its folder, or name another file")
    if path.is_dir():
        raise ValueError(f"checkpoint {path} is a folder: name a file in it")
    if not path.is_file():
        return None
    state = read_state(path)
    return state if state.get(FINGERPRINT) == fingerprint else None


def read_state(path: Path, *, mapped: bool = False) -> dict[str, Any]:
    """What a file of torch holds, its tensors on the CPU, empty where that is no dictionary; raises ValueError.

    mapped: leave tensors in the file until they are read.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"checkpoint {path} is no whole file of torch: remove it, or name another file") from error
    return state if isinstance(state, dict) else {}
