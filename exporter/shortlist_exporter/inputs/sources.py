"""Weights and contexts from files. Only tensors are read, never a pickle that can run code."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from shortlist.bundle.files import sha256
from shortlist.core.filters import check_id_range
from shortlist.errors import BadInput
from shortlist.evaluation.kinds import Kinds, find_kind_rows, parse_kinds
from shortlist_models import FullSoftmax

from shortlist_exporter.inputs.formats.base import (
    BIAS,
    WEIGHT,
    Array,
    Choice,
    Ids,
    Layer,
    check_finite,
    join_names,
    no_ids,
    read_floats,
)
from shortlist_exporter.inputs.formats.registry import read_layer
from shortlist_exporter.inputs.formats.tensor_file import read_tensors

MAX_CONTEXT = 1e15  # whose square, times d, float32 holds


@dataclass(frozen=True)
class Dense:
    """A dense output layer: logits = cap(logit_scale * (weight h + bias)).

    weight: [V, d] float32. bias: [V] float32 or None. logit_scale, soft_cap: over 0. padded: [m] int64 ids of rows that
    are no class. dtype: of the weight in the file. sha256: of the file, or of the hashes of the files that hold the
    weight, or of the numbers themselves where no file holds them. Raises BadInput for another scale or soft-cap;
    `check_layer` looks at the arrays.
    """

    weight: Array
    bias: Array | None = None
    logit_scale: float = 1.0
    soft_cap: float | None = None
    padded: Ids = field(default_factory=no_ids)
    dtype: str = "float32"
    sha256: str = ""

    def __post_init__(self) -> None:
        check_factor("logit_scale", self.logit_scale)
        if self.soft_cap is not None:
            check_factor("soft_cap", self.soft_cap)

    @cached_property
    def module(self) -> FullSoftmax:
        """The layer as a torch module over the same memory."""
        with torch.inference_mode(mode=False):  # it may be asked for where gradients are off, and be trained from later
            return FullSoftmax(
                torch.from_numpy(self.weight),
                None if self.bias is None else torch.from_numpy(self.bias),
                logit_scale=self.logit_scale,
                soft_cap=self.soft_cap,
                padded=torch.from_numpy(self.padded),
            )

    @property
    def classes(self) -> int:
        """V, the number of classes, padded rows included."""
        return len(self.weight)

    @property
    def real_classes(self) -> int:
        """V less the padded rows."""
        return len(self.weight) - int(self.padded.size)

    @property
    def dim(self) -> int:
        """The width d of contexts and weight rows."""
        return int(self.weight.shape[1])


@dataclass(frozen=True)
class Contexts:
    """A sample of context vectors.

    contexts: [n, d] float32. targets: [n] int64, the gold class of each, or None. documents: [n] int32, the document
    that each is from, or None. sha256: of the file. kinds: of text, by name the numbers of their documents. notes: on
    how they came about, sentences that a bundle's manifest repeats.
    """

    contexts: Array
    targets: Ids | None = None
    documents: npt.NDArray[np.int32] | None = None
    sha256: str = ""
    kinds: Kinds = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def kind_rows(self) -> dict[str, Ids]:
        """Positions of the rows of each kind of text, of those that have any."""
        return {} if self.documents is None else find_kind_rows(self.documents, self.kinds)


def check_factor(name: str, factor: float) -> None:
    """Raise BadInput unless `factor` is a number over 0 that float32 can hold."""
    with np.errstate(over="ignore", under="ignore"):
        is_factor = isinstance(factor, int | float | np.number) and 0 < np.float32(factor) < np.inf
    if not is_factor:
        raise BadInput(f"{name} is {factor} but must be a number over 0 that float32 can hold: give another")


def check_layer(dense: Dense) -> None:
    """Raise BadInput where the arrays of a layer that was made in Python are not what files are checked to have."""
    check_floats(WEIGHT, dense.weight, 2)
    if dense.bias is not None:
        check_floats(BIAS, dense.bias, 1)
        check_one_each("bias", dense.bias, dense.weight)
    padded = dense.padded
    if padded.ndim != 1 or padded.dtype.kind not in "iu" or len(np.unique(padded)) != padded.size:
        raise BadInput(f"padded must be different ids [m], not {padded.dtype} of shape {list(padded.shape)}")
    check_id_range("padded", padded, dense.classes)
    if padded.size and padded.min() < 0:
        raise BadInput(f"padded holds id {padded.min()} but classes go from 0 to {dense.classes - 1}")


def check_one_each(what: str, bias: Array, weight: Array) -> None:
    """Raise BadInput unless `bias` has a number for each row of `weight`, which some frameworks keep as [d, V]."""
    rows, columns = weight.shape
    if len(bias) != rows:
        mending = "give the transposed weight, [V, d]" if len(bias) == columns else "give one for each"
        raise BadInput(f"{what} has {len(bias)} entries for {rows} rows of weight: {mending}")


def check_floats(what: str, values: Array, dims: int) -> None:
    """Raise BadInput unless `values` is finite float32 with `dims` axes, none of them 0."""
    if not isinstance(values, np.ndarray) or values.dtype != np.float32:
        raise BadInput(f"{what} is {getattr(values, 'dtype', type(values).__name__)}: give a numpy array of float32")
    if values.ndim != dims or not values.size:
        raise BadInput(f"{what} has shape {list(values.shape)}: give {dims} axes, none of them 0")
    check_finite(what, values)


def load_dense(
    path: Path, bias_path: Path | None = None, tensor: str | None = None, bias_tensor: str | None = None
) -> Dense:
    """The output layer in a file (safetensors, npy, torch, ONNX, GGUF) or in a Hugging Face folder.

    tensor, bias_tensor: names of weight [V, d] and bias [V], instead of the format's own choice.
    bias_path: an npy or safetensors file with the bias. Raises NotFound, BadInput, MissingExtra.
    """
    layer = read_layer(path, Choice(tensor, bias_tensor if bias_path is None else None))
    weight = read_floats(f"{layer.weight_name} in {path}", layer.weight, 2)
    bias = check_bias(layer, path) if bias_path is None else load_bias(bias_path, bias_tensor or BIAS)
    if bias is not None:
        check_one_each(
            f"{(bias_tensor or BIAS) if bias_path else layer.bias_name} in {bias_path or path}", bias, weight
        )
    return Dense(weight, bias, layer.logit_scale, layer.soft_cap, layer.padded, layer.dtype, hash_files(layer.files))


def check_bias(layer: Layer, path: Path) -> Array | None:
    """The bias [V] that the layer's own format gives, as finite float32, or None; raises BadInput.

    So, too, where `path` is one of several files of a model, and their index says that the bias is in another.
    """
    if layer.bias is None and layer.bias_name and path.is_file():
        for index in sorted(path.parent.glob("*.index.json")):
            if f'"{layer.bias_name}"' in index.read_text("utf-8", "replace"):
                raise BadInput(f"{layer.bias_name} is in another file than {path}, says {index.name}: give the folder")
    return None if layer.bias is None else read_bias(f"{layer.bias_name} in {path}", layer.bias)


def read_bias(what: str, tensor: torch.Tensor) -> Array:
    """A bias [V], [1, V] or [V, 1] as finite float32 [V]; raises BadInput that begins with `what`."""
    is_vector = tensor.ndim == 2 and 1 in tensor.shape
    return read_floats(what, tensor.reshape(-1) if is_vector else tensor, 1)


def load_bias(path: Path, name: str) -> Array:
    """The tensor `name` [V] of a file that holds the bias; raises NotFound, BadInput."""
    return read_bias(f"{name} in {path}", read_tensors(path, name).require_tensor(name))


def hash_files(paths: tuple[Path, ...]) -> str:
    """The sha256 of one file, or of the hashes of several."""
    hashes = [sha256(path) for path in paths]
    return hashes[0] if len(hashes) == 1 else hashlib.sha256(" ".join(hashes).encode()).hexdigest()


def load_contexts(path: Path) -> Contexts:
    """Contexts with optional targets and documents, from safetensors or npy; raises NotFound, BadInput."""
    file = read_tensors(path, "contexts")
    contexts = file.read_floats("contexts", 2)
    if contexts is None:
        raise BadInput(f"{path} has no tensor 'contexts', only {join_names(sorted(file.tensors))}: rename it")
    targets, documents = file.read_integers("targets"), file.read_integers("documents")
    for name, values in {"targets": targets, "documents": documents}.items():
        if values is not None and len(values) != len(contexts):
            raise BadInput(
                f"{name} in {path} has {len(values)} entries for {len(contexts)} contexts: give one for each"
            )
    if documents is not None and np.any(documents != documents.astype(np.int32)):
        raise BadInput(f"documents in {path} hold numbers beyond 32 bits: number the documents from 0")
    owners = None if documents is None else documents.astype(np.int32)
    return Contexts(contexts, targets, owners, sha256(path), parse_kinds(file.metadata, path))


def check_pair(dense: Dense, contexts: Contexts) -> None:
    """Raise BadInput where layer or contexts are not what files are checked to have, or do not fit each other."""
    check_layer(dense)
    check_floats("contexts", contexts.contexts, 2)
    width = contexts.contexts.shape[1]
    if width != dense.dim:
        is_transposed = width == dense.classes
        mending = "give the transposed weight, [V, d]" if is_transposed else "capture both from one model"
        raise BadInput(f"contexts have d = {width} but the weight has d = {dense.dim}: {mending}")
    targets = contexts.targets
    for what, values in {"targets": targets, "documents": contexts.documents}.items():
        if values is not None and len(values) != len(contexts.contexts):
            raise BadInput(f"there are {len(values)} {what} for {len(contexts.contexts)} contexts: give one for each")
    largest = max(float(contexts.contexts.max()), -float(contexts.contexts.min()))
    if largest > MAX_CONTEXT:
        raise BadInput(f"contexts hold numbers up to {largest:.3g}, over {MAX_CONTEXT:g}: divide all of them")
    if targets is not None and targets.size and (targets.min() < 0 or targets.max() >= dense.classes):
        raise BadInput(
            f"targets go from {targets.min()} to {targets.max()} but classes from 0 to {dense.classes - 1}: leave out "
            "contexts without a class as their target"
        )
