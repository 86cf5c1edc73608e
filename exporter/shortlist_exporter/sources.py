"""Weights and contexts from files. Only tensors are read: safetensors and npy, never a pickle."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from shortlist.bundle import sha256
from shortlist.errors import BadInput, NotFound

Array = npt.NDArray[np.float32]
Ids = npt.NDArray[np.int64]

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
CHUNK = 65_536  # rows checked at a time


def no_ids() -> Ids:
    """An empty list of ids."""
    return np.empty(0, np.int64)


@dataclass(frozen=True)
class Dense:
    """A dense output layer: logits = cap(logit_scale * (weight h + bias)).

    weight: [V, d] float32. bias: [V] float32 or None. padded: [m] int64 ids of rows that are no class.
    dtype: of the file. sha256: of the file.
    """

    weight: Array
    bias: Array | None = None
    logit_scale: float = 1.0
    soft_cap: float | None = None
    padded: Ids = field(default_factory=no_ids)
    dtype: str = "float32"
    sha256: str = ""

    @property
    def classes(self) -> int:
        """V."""
        return len(self.weight)

    @property
    def dim(self) -> int:
        """D."""
        return int(self.weight.shape[1])


@dataclass(frozen=True)
class Contexts:
    """contexts: [n, d] float32. targets: [n] int64 or None. documents: [n] int32 or None, a row's document."""

    contexts: Array
    targets: Ids | None = None
    documents: npt.NDArray[np.int32] | None = None
    sha256: str = ""


@dataclass(frozen=True)
class Tensors:
    """A file's tensors and its text metadata."""

    path: Path
    tensors: dict[str, torch.Tensor]
    metadata: dict[str, str] = field(default_factory=dict)

    def floats(self, name: str, dims: int) -> Array | None:
        """The tensor as finite float32 with `dims` axes, or None where the file lacks it; raises BadInput."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        if tensor.dtype not in FLOATS:
            raise BadInput(f"{name} in {self.path} is {kind(tensor)}: give float32, float16 or bfloat16")
        if tensor.ndim != dims or tensor.numel() == 0:
            raise BadInput(f"{name} in {self.path} has shape {list(tensor.shape)}: give {dims} axes, none of them 0")
        values: Array = np.ascontiguousarray(tensor.float().numpy())
        check_finite(f"{name} in {self.path}", values)
        return values

    def integers(self, name: str) -> Ids | None:
        """The tensor as int64 [m], or None; raises BadInput."""
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        if tensor.ndim != 1 or tensor.is_floating_point() or tensor.dtype == torch.bool:
            raise BadInput(
                f"{name} in {self.path} must be integers of one axis, not {kind(tensor)} {list(tensor.shape)}"
            )
        return tensor.to(torch.int64).numpy()


def kind(tensor: torch.Tensor) -> str:
    """A tensor's dtype, as people write it."""
    return str(tensor.dtype).removeprefix("torch.")


def read_tensors(path: Path, npy_name: str) -> Tensors:
    """All tensors of a safetensors file, or the array of an npy under `npy_name`.

    Raises NotFound, or BadInput when the file is neither or was cut.
    """
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        if path.suffix == ".npy":
            return Tensors(path, {npy_name: torch.from_numpy(np.load(path, allow_pickle=False))})
        with safe_open(path, framework="pt") as file:
            return Tensors(path, {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {})
    except (SafetensorError, ValueError, TypeError, EOFError) as error:
        raise BadInput(f"{path} is not a whole safetensors or npy file of numbers: write it again") from error


def check_finite(what: str, values: Array) -> None:
    """Raise BadInput naming the first row with NaN or infinity, and how many there are."""
    for start in range(0, len(values), CHUNK):
        part = values[start : start + CHUNK]
        if np.isfinite(part).all():
            continue
        wrong = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        raise BadInput(
            f"{what} holds NaN or infinity in {wrong.sum()} of {len(values)} rows, first in row {wrong.argmax()}: "
            "give finite numbers"
        )


def load_dense(path: Path, bias_path: Path | None = None) -> Dense:
    """A dense layer from `weight` and optional `bias`, `padded` (safetensors), or an npy with its bias beside it.

    Metadata `logit_scale` and `soft_cap` are read where they are. Raises NotFound, BadInput.
    """
    file = read_tensors(path, "weight")
    weight = file.floats("weight", 2)
    if weight is None:
        raise BadInput(f"{path} has no tensor 'weight', only {', '.join(sorted(file.tensors)) or 'nothing'}: rename it")
    bias_file = file if bias_path is None else read_tensors(bias_path, "bias")
    bias = bias_file.floats("bias", 1)
    if bias is not None and len(bias) != len(weight):
        raise BadInput(f"bias in {bias_file.path} has {len(bias)} entries for {len(weight)} rows of weight")
    padded = file.integers("padded")
    return Dense(
        weight,
        bias,
        number(file, "logit_scale") or 1.0,
        number(file, "soft_cap"),
        no_ids() if padded is None else checked_padding(padded, len(weight), path),
        kind(file.tensors["weight"]),
        sha256(path),
    )


def number(file: Tensors, name: str) -> float | None:
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


def checked_padding(padded: Ids, classes: int, path: Path) -> Ids:
    """Distinct ids of padding rows; raises BadInput when one is no row."""
    if padded.size and (padded.min() < 0 or padded.max() >= classes):
        raise BadInput(f"padded in {path} names rows outside 0 to {classes - 1}")
    return np.unique(padded)


def load_contexts(path: Path) -> Contexts:
    """Contexts with optional targets and documents; raises NotFound, BadInput."""
    file = read_tensors(path, "contexts")
    contexts = file.floats("contexts", 2)
    if contexts is None:
        raise BadInput(
            f"{path} has no tensor 'contexts', only {', '.join(sorted(file.tensors)) or 'nothing'}: rename it"
        )
    targets, documents = file.integers("targets"), file.integers("documents")
    for name, values in {"targets": targets, "documents": documents}.items():
        if values is not None and len(values) != len(contexts):
            raise BadInput(f"{name} in {path} has {len(values)} entries for {len(contexts)} contexts")
    return Contexts(contexts, targets, None if documents is None else documents.astype(np.int32), sha256(path))


def check_pair(dense: Dense, contexts: Contexts) -> None:
    """Raise BadInput when the contexts cannot be of this layer."""
    width = contexts.contexts.shape[1]
    if width != dense.dim:
        raise BadInput(f"contexts have d = {width} but the weight has d = {dense.dim}: capture both from one model")
    targets = contexts.targets
    if targets is not None and targets.size and (targets.min() < 0 or targets.max() >= dense.classes):
        raise BadInput(f"targets go from {targets.min()} to {targets.max()} but classes from 0 to {dense.classes - 1}")
