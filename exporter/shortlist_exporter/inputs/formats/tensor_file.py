"""safetensors, and npy of one array."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from shortlist.core.checks import check_file
from shortlist.errors import BadInput

from .base import WEIGHT, Choice, Ids, Layer, Tensors, join_names, make_layer, no_ids, refuse_other_bias, sort_names

FACTORS = {  # names of tensors that nothing would be read from -> how what they hold is given
    "logit_scale": "give its value, of CLIP its exponential, as logit_scale in the file's metadata",
    "soft_cap": "give its value as soft_cap in the file's metadata",
}
SUFFIXES = (".safetensors", ".npy")


def read_tensor_layer(path: Path, choice: Choice) -> Layer:
    """Read `weight` or the tensor chosen; with `weight` also `padded`, and scale and soft-cap from the metadata.

    Raises NotFound, BadInput.
    """
    file = read_tensors(path, WEIGHT)
    if choice.weight is None and WEIGHT not in file.tensors:
        names = join_names(sort_names(file.tensors))
        raise BadInput(f"{path} has no tensor '{WEIGHT}', only {names}: choose one of them by --tensor")
    name = choice.weight or WEIGHT
    layer = make_layer(file, name, choice.bias)
    refuse_other_bias(file, layer, choice)
    if name != WEIGHT:
        return layer
    for other in FACTORS:
        if other in file.tensors:
            raise BadInput(f"{other} in {path} is a tensor beside the weight: {FACTORS[other]}")
    return replace(
        layer,
        padded=read_padding(file, len(layer.weight)) if layer.weight.ndim else no_ids(),
        logit_scale=read_number(file, "logit_scale") or 1.0,
        soft_cap=read_number(file, "soft_cap"),
    )


def read_tensors(path: Path, npy_name: str) -> Tensors:
    """All tensors of a safetensors file, or the array of an npy under `npy_name`.

    Raises NotFound, or BadInput when the file is neither or was cut.
    """
    check_file(path)
    try:
        if path.suffix == ".npy":
            return Tensors(path, {npy_name: load_npy(path)})
        with path.open("rb"), safe_open(path, framework="pt") as file:  # which calls a file absent that it may not read
            return Tensors(path, {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {})
    except (SafetensorError, ValueError, TypeError, EOFError) as error:
        mending = (
            "write it again" if path.suffix in SUFFIXES else f"save it as one of them, named {' or '.join(SUFFIXES)}"
        )
        raise BadInput(f"{path} is not a whole safetensors or npy file of numbers: {mending}") from error


def load_npy(path: Path) -> torch.Tensor:
    """The array of an npy file, in this machine's byte order; raises BadInput, ValueError, TypeError, EOFError."""
    with path.open("rb") as file:
        array = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise TypeError("this is an archive of arrays under another name")
    if array.dtype.kind == "V":  # as numpy reads the types of ml_dtypes
        raise BadInput(f"{path} is of a type that numpy does not have, such as bfloat16: save it as float32")
    if array.dtype == np.longdouble != np.float64:
        raise BadInput(f"{path} is {array.dtype}, which torch does not have: save it as float32")
    return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), copy=False))


def read_number(file: Tensors, name: str) -> float | None:
    """A positive number from the metadata, or None; raises BadInput."""
    text = file.metadata.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not 0 < value < float("inf"):
        raise BadInput(f"{name} in the metadata of {file.path} is '{text}': give a positive number")
    return value


def read_padding(file: Tensors, classes: int) -> Ids:
    """Distinct ids of padding rows; raises BadInput where one is outside the layer."""
    padded = file.read_integers("padded")
    if padded is None:
        return no_ids()
    if padded.size and (padded.min() < 0 or padded.max() >= classes):
        raise BadInput(f"padded in {file.path} names rows outside 0 to {classes - 1}")
    return np.unique(padded)
