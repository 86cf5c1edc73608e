"""State dicts saved by torch. Only tensors are unpickled: anything that could run code is refused."""

from __future__ import annotations

import pickle
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from shortlist.errors import BadInput

from .base import WEIGHT, Choice, Layer, Tensors, default_weight, layer_of

ADVICE = "save only the tensors, by torch.save(model.state_dict(), path)"


def read(path: Path, choice: Choice) -> Layer:
    """The tensor chosen, else `weight`, else the only matrix, with the bias of its name; raises BadInput."""
    file = read_tensors(path)
    return layer_of(file, choice.weight or default_weight(file), choice.bias)


def read_tensors(path: Path) -> Tensors:
    """All tensors of a state dict, those of nested dicts as `outer.inner`; raises BadInput."""
    tensors = dict(flattened(load(path), ""))
    if not tensors:
        raise BadInput(f"{path} holds no tensor: {ADVICE}")
    return Tensors(path, tensors)


def load(path: Path) -> Any:
    """What torch saved, memory-mapped where the file is of the newer kind; raises BadInput."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of the pickle's protocol, which concerns torch's makers
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        raise BadInput(f"{path} is damaged or holds more than tensors, which could run code: {ADVICE}") from error
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OSError) as error:
        raise BadInput(f"{path} is not a whole file of torch: write it again") from error


def flattened(content: Any, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a mapping of mappings with their full names; a lone tensor is the weight."""
    if isinstance(content, torch.Tensor):
        yield prefix or WEIGHT, content
    elif isinstance(content, Mapping):
        for name, value in content.items():
            yield from flattened(value, f"{prefix}.{name}" if prefix else str(name))
