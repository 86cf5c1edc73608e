"""Contexts from npy and safetensors files, and answers to npz and safetensors: without torch."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors import SafetensorError
from safetensors.numpy import save

from .arrays import Array, float_array
from .errors import BadInput, NotFound, ShortlistError
from .protocol import DATATYPES, widened

DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "F64": np.dtype("<f8"),
    "BF16": DATATYPES["BF16"],
}
KIND = "an npy file of [n, d] numbers, or a safetensors file with a tensor 'contexts'"


def read_contexts(path: Path) -> Array:
    """[n, d] float32 or float16; raises NotFound, BadInput."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        contexts = np.load(path, allow_pickle=False) if path.suffix == ".npy" else safetensors_contexts(path)
    except (SafetensorError, ValueError, TypeError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: give {KIND}") from error
    return float_array(f"contexts of {path}", contexts)


def safetensors_contexts(path: Path) -> Array:
    """The tensor `contexts`; numpy has no bfloat16, so it is widened here."""
    for name, tensor in safetensors.deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        if name == "contexts" and tensor["dtype"] in DTYPES:
            numbers: Array = np.frombuffer(tensor["data"], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
            return widened(numbers) if tensor["dtype"] == "BF16" else numbers
    raise ValueError("no tensor 'contexts' of floats")


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an npz or safetensors file, by the name's end; raises BadInput, ShortlistError when the disk refuses."""
    if path.suffix not in WRITERS:
        raise BadInput(f"{path} must end in {' or '.join(WRITERS)}")
    try:
        path.write_bytes(WRITERS[path.suffix](arrays))
    except OSError as error:
        raise ShortlistError(f"{path} cannot be written: {error.strerror}") from error


def npz(arrays: Mapping[str, Array]) -> bytes:
    """The bytes of an npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def packed(arrays: Mapping[str, Array]) -> bytes:
    """The bytes of a safetensors file."""
    content: bytes = save(dict(arrays))
    return content


WRITERS = {".npz": npz, ".safetensors": packed}
