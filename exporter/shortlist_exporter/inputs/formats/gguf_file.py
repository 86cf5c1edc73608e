"""The output layer of a GGUF file, its quantised types made float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from shortlist.core.extras import require
from shortlist.errors import BadInput

from .base import Array, Choice, Ids, Layer, beside, listed, no_ids

OUTPUT, TIED = "output.weight", "token_embd.weight"
ROWS = 8_192  # dequantised at a time
UNUSED = 5  # a token's type
# What llama.cpp does with an architecture's logit scale.
MULTIPLY = ("command-r", "cohere2", "cohere2moe", "grok", "falcon-h1")
DIVIDE = ("granite", "granitemoe", "granitehybrid", "minicpm")


def read(path: Path, choice: Choice) -> Layer:
    """`output.weight`, or the token embeddings where they are tied, or the tensor chosen.

    The float32 matrix is as large as V x d; what is read beside it is `ROWS` rows. Raises NotFound, BadInput.
    """
    reader = open_gguf(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    name = choice.weight or (OUTPUT if OUTPUT in tensors else TIED)
    tensor = named(tensors, name, path)
    bias_name = choice.bias or beside(name if choice.weight else OUTPUT)
    bias = named(tensors, bias_name, path) if choice.bias else tensors.get(bias_name)
    weight = dequantised(tensor, path)
    return Layer(
        torch.from_numpy(weight),
        name,
        tensor.tensor_type.name,
        (path,),
        None if bias is None else torch.from_numpy(dequantised(bias, path)),
        bias_name,
        padded=padding(reader, len(weight)) if name in (OUTPUT, TIED) else no_ids(),
        logit_scale=logit_scale(reader, path),
        soft_cap=setting(reader, "final_logit_softcapping"),
    )


def open_gguf(path: Path) -> Any:
    """A reader over the memory-mapped file; raises BadInput, MissingExtra."""
    gguf = require("gguf", "capture")
    try:
        return gguf.GGUFReader(path)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, OSError) as error:
        raise BadInput(f"{path} is not a whole GGUF file that can be read ({error}): copy it again") from error


def named(tensors: dict[str, Any], name: str, path: Path) -> Any:
    """A tensor; raises BadInput with the matrices that there are."""
    if name not in tensors:
        matrices = [f"{x.name} {x.shape[::-1].tolist()}" for x in tensors.values() if len(x.shape) == 2]
        raise BadInput(f"{path} has no tensor '{name}': choose by --tensor among {listed(matrices)}")
    return tensors[name]


def dequantised(tensor: Any, path: Path) -> Array:
    """A tensor as float32 in numpy's order of axes, [V, d] or [V]; raises BadInput."""
    quants = require("gguf.quants", "capture")
    values = np.empty(tensor.shape[::-1].tolist(), np.float32)  # GGUF counts axes from the innermost
    data = tensor.data if tensor.data.ndim > 1 else tensor.data[None]
    rows = values if values.ndim > 1 else values[None]
    try:
        for start in range(0, len(rows), ROWS):
            rows[start : start + ROWS] = quants.dequantize(data[start : start + ROWS], tensor.tensor_type)
    except NotImplementedError as error:
        raise BadInput(
            f"{tensor.name} in {path} is {tensor.tensor_type.name}, which cannot be read: convert it to Q8_0 or F16"
        ) from error
    return values


def content(reader: Any, key: str) -> Any:
    """A setting of the file, or None."""
    field = reader.get_field(key)
    return None if field is None else field.contents()


def setting(reader: Any, name: str) -> float | None:
    """A positive number of the file's architecture, or None; zero means none."""
    value = content(reader, f"{content(reader, 'general.architecture')}.{name}")
    return float(value) if isinstance(value, int | float) and 0 < value < float("inf") else None


def logit_scale(reader: Any, path: Path) -> float:
    """What multiplies the logits; raises BadInput where it is not known whether the architecture divides."""
    scale = setting(reader, "logit_scale")
    architecture = content(reader, "general.architecture")
    if scale is None or architecture in MULTIPLY:
        return scale or 1.0
    if architecture in DIVIDE:
        return 1 / scale
    raise BadInput(
        f"{path} is of architecture {architecture}, of which it is not known whether its logit scale multiplies: "
        "take the weights out by `shortlist capture --weights-out`"
    )


def padding(reader: Any, classes: int) -> Ids:
    """Rows beyond the tokens, and those whose token only pads the vocabulary."""
    names = tokens(reader)
    if names is None:
        return no_ids()
    types = content(reader, "tokenizer.ggml.token_type") or [0] * len(names)
    filled = [i for i, kind in enumerate(types[:classes]) if kind == UNUSED and names[i] == f"[PAD{i}]"]
    return np.array(filled + list(range(len(names), classes)), np.int64)


def tokens(reader: Any) -> list[str] | None:
    """The vocabulary as stored, or None where the file has none."""
    names: list[str] | None = content(reader, "tokenizer.ggml.tokens")
    return names
