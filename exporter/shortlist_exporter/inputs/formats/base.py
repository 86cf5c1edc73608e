"""What every format returns, the named tensors that most files hold, and how a layer is chosen among them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from shortlist.errors import BadInput

from .model_settings import BIAS_NAMES, CLASSIFIER_MODULES, ends_with, has_module

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

WEIGHT, BIAS = "weight", "bias"
KERNEL = "kernel"  # the last word of a weight's name in Flax and Keras, which keep it as [d, V]
PARTS = re.compile(r"(^|[./])(parametrizations[./].*|weight_(v|g|orig|mask))$")  # names of what a weight is made of
ADAPTER_MODULES = ("base_layer", "original_module", "modules_to_save", "lora_A", "lora_B")  # of peft
FLOAT_TYPES = (torch.float32, torch.float16, torch.bfloat16)
# Beside weights of these types their scales may be the only matrix of floats.
QUANTISED_TYPES = (torch.int8, torch.uint8, torch.int32, torch.uint32)
CHECK_CHUNK_ROWS = 65_536  # rows checked at a time
MAX_NAMES_SHOWN = 12  # names in an error


def no_ids() -> Ids:
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Choice:
    """Names of the tensors to take; None leaves it to the format."""

    weight: str | None = None
    bias: str | None = None


@dataclass(frozen=True)
class Layer:
    """An output layer as a format reads it, not yet checked: logits = cap(logit_scale * (weight h + bias)).

    weight: [V, d] and bias: [V] of any dtype, with their names for messages. padded: [m] ids of rows that are no class.
    dtype: as the file says it. files: those that hold the weight.
    """

    weight: torch.Tensor
    weight_name: str
    dtype: str
    files: tuple[Path, ...]
    bias: torch.Tensor | None = None
    bias_name: str = BIAS
    padded: Ids = field(default_factory=no_ids)
    logit_scale: float = 1.0
    soft_cap: float | None = None


@dataclass(frozen=True)
class Tensors:
    """A file's tensors and its text metadata."""

    path: Path
    tensors: Mapping[str, torch.Tensor]
    metadata: Mapping[str, str] = field(default_factory=dict)

    def require_tensor(self, name: str) -> torch.Tensor:
        """The tensor of this name; raises BadInput with the names that there are."""
        if name not in self.tensors:
            raise BadInput(
                f"{self.path} has no tensor '{name}', only {join_names(sort_names(self.tensors))}: name one of them"
            )
        return self.tensors[name]

    def read_floats(self, name: str, dims: int) -> Array | None:
        """The tensor as finite float32 with `dims` axes, or None where the file lacks it; raises BadInput."""
        tensor = self.tensors.get(name)
        return None if tensor is None else read_floats(f"{name} in {self.path}", tensor, dims)

    def read_integers(self, name: str) -> Ids | None:
        """The tensor as int64 [m], or None; raises BadInput."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        if tensor.ndim != 1 or tensor.is_floating_point() or tensor.dtype == torch.bool:
            raise BadInput(
                f"{name} in {self.path} must be integers of one axis, not {dtype_name(tensor)} {list(tensor.shape)}"
            )
        return tensor.to(torch.int64).numpy()


def read_floats(what: str, tensor: torch.Tensor, dims: int) -> Array:
    """A tensor of `dims` axes as finite float32; raises BadInput that begins with `what`.

    Two axes of length 1 behind these are left out: those of a convolution of 1 x 1, and of what was pooled for one.
    """
    if tensor.dtype not in FLOAT_TYPES or tensor.layout != torch.strided or tensor.is_meta:
        mending = ', as by numpy\'s .astype("float32")' if tensor.dtype == torch.float64 else ""
        raise BadInput(f"{what} is {dtype_name(tensor)}: give float32, float16 or bfloat16{mending}")
    if tensor.shape[dims:] == (1, 1):
        tensor = tensor.reshape(tensor.shape[:dims])
    if tensor.ndim != dims or tensor.numel() == 0:
        raise BadInput(f"{what} has shape {list(tensor.shape)}: give {dims} axes, none of them 0")
    values: Array = np.ascontiguousarray(tensor.detach().float().numpy())
    check_finite(what, values)
    return values


def dtype_name(tensor: torch.Tensor) -> str:
    """A tensor's dtype for messages, as in `float16`, `sparse float32`, or `float32 without numbers`."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_meta:
        return f"{dtype} without numbers"
    return dtype if tensor.layout == torch.strided else f"sparse {dtype}"


def check_finite(what: str, values: Array) -> None:
    """Raise BadInput naming the first row with NaN or infinity, and how many there are."""
    for start in range(0, len(values), CHECK_CHUNK_ROWS):
        part = values[start : start + CHECK_CHUNK_ROWS]
        if np.isfinite(part).all():
            continue
        bad_rows = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        raise BadInput(
            f"{what} holds NaN or infinity in {bad_rows.sum()} of {len(values)} rows, first in row "
            f"{bad_rows.argmax()}: give finite numbers"
        )


def join_names(names: Iterable[str]) -> str:
    """Names for a message, at most `MAX_NAMES_SHOWN` of them."""
    all_names = list(names)
    rest = f" and {len(all_names) - MAX_NAMES_SHOWN} more" if len(all_names) > MAX_NAMES_SHOWN else ""
    return ", ".join(all_names[:MAX_NAMES_SHOWN]) + rest or "nothing"


def sort_names(tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Names for a message; of more than are shown matrices come first, those of the most rows before the others."""
    if len(tensors) <= MAX_NAMES_SHOWN:
        return sorted(tensors)
    return sorted(tensors, key=lambda name: (-len(tensors[name]) if tensors[name].ndim == 2 else 0, name))


def list_matrices(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Tensors that could be a weight matrix: name -> `name [V, d]`, those of the most rows first.

    Of tied tensors the last, which is the output's.
    """
    matrices = {name: tensor for name, tensor in tensors.items() if tensor.ndim == 2 and may_be_weight(tensor)}
    last = {(tensor.data_ptr(), tensor.shape): name for name, tensor in matrices.items() if tensor.numel()}
    by_rows = sorted(last.values(), key=lambda name: -len(matrices[name]))
    return {name: f"{name} {list(matrices[name].shape)}" for name in by_rows}


def may_be_weight(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds floats, or integers that quantised weights are kept in."""
    return tensor.is_floating_point() or tensor.dtype in QUANTISED_TYPES


def choose_weight(file: Tensors) -> str:
    """`weight`, else the file's only matrix; raises BadInput with the candidates."""
    if WEIGHT in file.tensors:
        return WEIGHT
    names = list_matrices(file.tensors)
    if len(names) == 1:
        return next(iter(names))
    for name in file.tensors if not names else ():
        if name.endswith(WEIGHT):
            refuse_without_numbers(file, name)
    if not names:
        raise BadInput(f"{file.path} has no matrix, only {join_names(sorted(file.tensors))}: give a file with one")
    raise BadInput(f"{file.path} has {len(names)} matrices: choose by --tensor among {join_names(names.values())}")


def name_bias(weight_name: str) -> str:
    """The name of the bias that belongs to a weight's name: `fc.weight` -> `fc.bias`, `fc/kernel` -> `fc/bias`."""
    end = next((end for end in (WEIGHT, KERNEL) if weight_name.endswith(end)), None)
    return "" if end is None else weight_name.removesuffix(end) + BIAS


def make_layer(file: Tensors, name: str, bias_name: str | None) -> Layer:
    """The layer of the weight `name`, and the bias `bias_name` or the one beside the weight; raises BadInput."""
    weight = file.require_tensor(name)
    refuse_part_of_weight(file, name)
    refuse_without_numbers(file, name)
    bias = file.tensors.get(name_bias(name)) if bias_name is None else file.require_tensor(bias_name)
    is_kernel = weight.ndim == 2 and re.split("[./]", name)[-1] == KERNEL
    return Layer(
        weight.T if is_kernel else weight, name, dtype_name(weight), (file.path,), bias, bias_name or name_bias(name)
    )


def refuse_part_of_weight(file: Tensors, name: str) -> None:
    """Raise BadInput where a tensor is a part of what makes a weight, or an adapter beside it adds to it."""
    if PARTS.search(name):
        raise BadInput(
            f"{name} in {file.path} is a part of a weight, not the weight: call remove_parametrizations(), "
            "remove_weight_norm(), remove_spectral_norm() or prune.remove() of torch first, and save again"
        )
    module = name.removesuffix(WEIGHT).removesuffix("base_layer.")
    for other in file.tensors if module else ():
        is_part = other.startswith(module) and other.removeprefix(module).split(".")[0] in ADAPTER_MODULES
        if is_part and other != name:
            raise BadInput(
                f"{file.path} holds {other}, which an adapter adds to {name}: merge it into the model by peft's "
                "merge_and_unload() first, and save again"
            )


def refuse_without_numbers(file: Tensors, name: str) -> None:
    """Raise BadInput where a tensor is without any, as in a checkpoint of which other processes hold the parameters."""
    if file.tensors[name].shape == (0,):
        raise BadInput(
            f"{name} in {file.path} has shape [0], as DeepSpeed's ZeRO-3 saves what other processes hold: put these "
            "together by its zero_to_fp32.py, and give the file that it writes"
        )


def refuse_other_bias(file: Tensors, layer: Layer, choice: Choice) -> None:
    """Raise BadInput where a layer has no bias beside it, but its file one that output layers' have by another name."""
    if layer.bias is not None or choice.bias or has_module(layer.weight_name, CLASSIFIER_MODULES):
        return
    if names := [name for name in file.tensors if ends_with(name, BIAS_NAMES)]:
        raise BadInput(
            f"{file.path} holds {join_names(names)}, which the logits by {layer.weight_name} may need: choose a bias "
            "by --bias-tensor, or give the model's folder"
        )
