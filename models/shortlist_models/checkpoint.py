"""A training's state on disk, so that a training that was interrupted goes on where it stopped."""

from __future__ import annotations

import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

FINGERPRINT = "fingerprint"


def name_training(options: str, *data: Tensor | None) -> str:
    """The fingerprint of a training: its options, and a hash of the values and shapes of what it is fitted to."""
    digest = sha256()
    for tensor in data:
        digest.update(repr(None if tensor is None else tuple(tensor.shape)).encode())
        if tensor is not None:
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().data)
    return f"{options} {digest.hexdigest()}"


def save_checkpoint(path: Path | None, fingerprint: str, state: dict[str, Any]) -> None:
    """Write `state` (tensors, numbers, strings and containers of them) to `path`, whole or not at all.

    fingerprint: as of `name_training`; only a training of the same one takes the state up.
    """
    if path is None:
        return
    partial = path.with_name(path.name + ".partial")
    torch.save({FINGERPRINT: fingerprint} | state, partial)
    partial.replace(path)


def load_checkpoint(path: Path | None, fingerprint: str) -> dict[str, Any] | None:
    """The state at `path`, or None where there is no file or another training wrote it.

    Raises ValueError for a file that torch did not write, and where `save_checkpoint` could write none.
    """
    if path is None:
        return None
    if not path.parent.is_dir():
        raise ValueError(f"checkpoint {path} cannot be written: make its folder, or name another file")
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"checkpoint {path} is no whole file of torch: remove it, or name another file") from error
    return state if state.get(FINGERPRINT) == fingerprint else None
