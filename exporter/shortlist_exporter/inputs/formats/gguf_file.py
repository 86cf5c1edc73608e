"""The output layer of a GGUF file, its quantised types made float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from shortlist.core.extras import require
from shortlist.errors import BadInput

from .base import Array, Choice, Ids, Layer, join_names, name_bias, no_ids

OUTPUT_WEIGHT, TIED_WEIGHT = "output.weight", "token_embd.weight"
CLASSIFIER_WEIGHTS = ("cls.output.weight", "cls.weight")
DEQUANTIZE_CHUNK_ROWS = 8_192  # dequantised at a time
UNUSED_TOKEN_TYPE = 5  # a token's type
# What llama.cpp does with an architecture's logit scale.
MULTIPLYING_ARCHITECTURES = ("command-r", "cohere2", "cohere2moe", "grok", "falcon-h1")
DIVIDING_ARCHITECTURES = ("granite", "granitemoe", "granitehybrid", "minicpm")


def read_gguf_layer(path: Path, choice: Choice) -> Layer:
    """Read `output.weight`, or the token embeddings where they are tied, or the tensor chosen.

    Memory holds the float32 matrix V x d and `DEQUANTIZE_CHUNK_ROWS` rows more. Raises NotFound, BadInput.
    """
    reader = open_gguf(path)
    refuse_part(reader, path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    name = choice.weight or (OUTPUT_WEIGHT if OUTPUT_WEIGHT in tensors else TIED_WEIGHT)
    if choice.weight is None and name == TIED_WEIGHT:
        refuse_encoder(reader, tensors, path)
    tensor = require_tensor(tensors, name, path)
    bias_name = choice.bias or name_bias(name if choice.weight else OUTPUT_WEIGHT)
    bias = require_tensor(tensors, bias_name, path) if choice.bias else tensors.get(bias_name)
    weight = dequantize(tensor, path)
    return Layer(
        torch.from_numpy(weight),
        name,
        tensor.tensor_type.name,
        (path,),
        None if bias is None else torch.from_numpy(dequantize(bias, path)),
        bias_name,
        padded=find_padding(reader, len(weight)) if name in (OUTPUT_WEIGHT, TIED_WEIGHT) else no_ids(),
        logit_scale=read_logit_scale(reader, path),
        soft_cap=read_setting(reader, "final_logit_softcapping"),
    )


def open_gguf(path: Path) -> Any:
    """A reader over the memory-mapped file; raises BadInput, MissingExtra."""
    gguf = require("gguf", "capture")
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, OSError) as error:
        raise BadInput(f"{path} is not a whole GGUF file that can be read ({error}): copy it again") from error


def refuse_part(reader: Any, path: Path) -> None:
    """Raise BadInput for an adapter, and for one of several files of a model, whose layer may be in another."""
    if read_field(reader, "general.type") == "adapter":
        raise BadInput(f"{path} holds an adapter alone: merge it into its model by llama.cpp's `llama-export-lora`")
    parts = read_field(reader, "split.count") or 1
    if parts > 1:
        raise BadInput(
            f"{path} is one of {parts} parts of a model: join them by llama.cpp's `llama-gguf-split --merge`, from the "
            "first part to a file of its own"
        )


def refuse_encoder(reader: Any, tensors: dict[str, Any], path: Path) -> None:
    """Raise BadInput for a model whose token embeddings are no output layer: a classifier, or one of embeddings."""
    if classifiers := [name for name in CLASSIFIER_WEIGHTS if name in tensors]:
        raise BadInput(f"{path} is a classifier: choose its weight by --tensor {join_names(classifiers)}")
    architecture = str(read_field(reader, "general.architecture"))
    if "bert" in architecture or architecture.endswith("encoder"):
        raise BadInput(
            f"{path} is of architecture {architecture}, which has no output layer: choose a weight by --tensor, such "
            f"as {TIED_WEIGHT}"
        )


def require_tensor(tensors: dict[str, Any], name: str, path: Path) -> Any:
    """The tensor of this name; raises BadInput with the matrices that there are."""
    if name not in tensors:
        matrices = [f"{x.name} {x.shape[::-1].tolist()}" for x in tensors.values() if len(x.shape) == 2]
        raise BadInput(f"{path} has no tensor '{name}': choose by --tensor among {join_names(matrices)}")
    return tensors[name]


def dequantize(tensor: Any, path: Path) -> Array:
    """A tensor as float32 in numpy's order of axes, [V, d] or [V]; raises BadInput."""
    quants = require("gguf.quants", "capture")
    values = np.empty(tensor.shape[::-1].tolist(), np.float32)  # GGUF counts axes from the innermost
    data = tensor.data if tensor.data.ndim > 1 else tensor.data[None]
    rows = values if values.ndim > 1 else values[None]
    try:
        for start in range(0, len(rows), DEQUANTIZE_CHUNK_ROWS):
            rows[start : start + DEQUANTIZE_CHUNK_ROWS] = quants.dequantize(
                data[start : start + DEQUANTIZE_CHUNK_ROWS], tensor.tensor_type
            )
    except NotImplementedError as error:
        raise BadInput(
            f"{tensor.name} in {path} is {tensor.tensor_type.name}, which cannot be read: convert it to Q8_0 or F16"
        ) from error
    return values


def read_field(reader: Any, key: str) -> Any:
    """The value of a field of the file, or None."""
    field = reader.get_field(key)
    return None if field is None else field.contents()


def read_setting(reader: Any, name: str) -> float | None:
    """A positive number of the file's architecture, or None; zero means none."""
    value = read_field(reader, f"{read_field(reader, 'general.architecture')}.{name}")
    return float(value) if isinstance(value, int | float) and 0 < value < float("inf") else None


def read_logit_scale(reader: Any, path: Path) -> float:
    """The factor of the logits; raises BadInput where it is not known whether the architecture divides by it."""
    scale = read_setting(reader, "logit_scale")
    architecture = read_field(reader, "general.architecture")
    if scale is None or architecture in MULTIPLYING_ARCHITECTURES:
        return scale or 1.0
    if architecture in DIVIDING_ARCHITECTURES:
        return 1 / scale
    raise BadInput(
        f"{path} is of architecture {architecture}, of which it is not known whether its logit scale multiplies: "
        "take the weights out by `shortlist capture --weights-out`"
    )


def find_padding(reader: Any, classes: int) -> Ids:
    """Ids of rows beyond the tokens, and of those whose token only pads the vocabulary."""
    names = read_tokens(reader)
    if names is None:
        return no_ids()
    types = read_field(reader, "tokenizer.ggml.token_type") or [0] * len(names)
    unused_ids = [i for i, kind in enumerate(types[:classes]) if kind == UNUSED_TOKEN_TYPE and names[i] == f"[PAD{i}]"]
    return np.array(unused_ids + list(range(len(names), classes)), np.int64)


def read_tokens(reader: Any) -> list[str] | None:
    """The vocabulary as stored, or None where the file has none."""
    names: list[str] | None = read_field(reader, "tokenizer.ggml.tokens")
    return names
