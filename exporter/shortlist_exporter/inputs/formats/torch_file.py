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

from .base import WEIGHT, Choice, Layer, Tensors, choose_weight, make_layer, refuse_other_bias

SAVE_ADVICE = "save only the tensors, by torch.save(model.state_dict(), path)"
PICKLE_START = b"\x80"  # of what torch saved before it wrote zip archives
OTHER_FILES = (  # of the same ending
    "of word2vec, fastText or CTranslate2, which is no file of torch, take the output vectors, and save them as .npy, "
    "[V, d]; else copy the file again"
)
PACKED = "_packed_params"  # a part of names of quantised layers' weights
MODULE_PREFIX = "module."  # of the names of a module's tensors in a dict of more, as of `torch.nn.parallel` modules


def read_torch_layer(path: Path, choice: Choice) -> Layer:
    """Read the tensor chosen, else `weight`, else the only matrix, with the bias of its name; raises BadInput."""
    file = read_torch_tensors(path)
    layer = make_layer(file, choice.weight or choose_weight(file), choice.bias)
    refuse_other_bias(file, layer, choice)
    return layer


def read_torch_tensors(path: Path) -> Tensors:
    """All tensors of a state dict, those of nested dicts as `outer.inner`; raises BadInput."""
    tensors = dict(flatten(load_torch_file(path), ""))
    if not tensors:
        raise BadInput(f"{path} holds no tensor: {SAVE_ADVICE}")
    return Tensors(path, tensors)


def select_module(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Those of a module in a training's checkpoint, or behind torch's parallel modules, by its own names for them."""
    inner = {name: tensor for name, tensor in tensors.items() if name.startswith(MODULE_PREFIX)}
    return {name.removeprefix(MODULE_PREFIX): tensor for name, tensor in inner.items()}


def strip_wrappers(tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
    """Tensors without what all of their names begin with, as `_orig_mod.` of a compiled module, or `state_dict.`."""
    first_words = {name.split(".")[0] for name in tensors}
    if len(first_words) != 1 or first_words & set(tensors):
        return tensors
    return strip_wrappers({name.partition(".")[2]: tensor for name, tensor in tensors.items()})


def load_torch_file(path: Path) -> Any:
    """Load what torch saved, memory-mapped where the file is a zip archive; raises BadInput."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of the pickle's protocol, which concerns torch's makers
            return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        if not zipfile.is_zipfile(path) and not starts_as_pickle(path):
            raise BadInput(f"{path} was not saved by torch: {OTHER_FILES}") from error
        raise BadInput(f"{path} is damaged or holds more than tensors, which could run code: {SAVE_ADVICE}") from error
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError, OSError) as error:
        if is_program(path):
            raise BadInput(f"{path} is a program of torch (TorchScript or torch.export): {SAVE_ADVICE}") from error
        raise BadInput(f"{path} is not a whole file of torch: write it again") from error


def starts_as_pickle(path: Path) -> bool:
    """Whether a file begins as what torch saved before it wrote zip archives."""
    with path.open("rb") as file:
        return file.read(len(PICKLE_START)) == PICKLE_START


def is_program(path: Path) -> bool:
    """Whether a file is an archive that holds a model's code or graph beside its tensors."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any({"code", "models"} & set(name.split("/")) for name in archive.namelist())


def flatten(content: Any, prefix: str) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a mapping of mappings with their full names; a lone tensor is the weight. Raises BadInput."""
    if isinstance(content, torch.Tensor):
        yield prefix or WEIGHT, content
    elif PACKED in prefix:
        raise BadInput(f"{prefix} is a layer that torch has quantised: save the model from before that")
    elif isinstance(content, Mapping):
        for name, value in content.items():
            yield from flatten(value, f"{prefix}.{name}" if prefix else str(name))
