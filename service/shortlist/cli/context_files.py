"""Contexts and targets from npy and safetensors files, and answers to npy, npz and safetensors: without torch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from safetensors import SafetensorError

from shortlist.core.arrays import Array, to_float_array
from shortlist.errors import BadInput, NotFound
from shortlist.wire.open_inference import DATATYPES, widen_bfloat16

DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "F64": np.dtype("<f8"),
    "BF16": DATATYPES["BF16"],
}
SAFETENSORS = {"<i8": "I64", "<i4": "I32", "<f4": "F32", "<f2": "F16"}  # its names of what is written
COPIED = 1 << 20  # bytes at a time
RECORDS = 65_536  # rows at a time
KIND = "an npy file of [n, d] numbers, or a safetensors file with a tensor 'contexts'"
TARGETS_KIND = "an npy file of [n] whole numbers, or a safetensors file with a tensor 'targets'"


def read_contexts(path: Path) -> Array:
    """[n, d] float32 or float16; raises NotFound, BadInput."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        contexts = np.load(path, allow_pickle=False) if path.suffix == ".npy" else safetensors_contexts(path)
    except (SafetensorError, ValueError, TypeError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: give {KIND}") from error
    return to_float_array(f"contexts of {path}", contexts)


def safetensors_contexts(path: Path) -> Array:
    """The tensor `contexts`; numpy has no bfloat16, so it is widened here."""
    for name, tensor in safetensors.deserialize(path.read_bytes()):  # type: ignore[no-untyped-call]
        if name == "contexts" and tensor["dtype"] in DTYPES:
            numbers: Array = np.frombuffer(tensor["data"], DTYPES[tensor["dtype"]]).reshape(tensor["shape"])
            return widen_bfloat16(numbers) if tensor["dtype"] == "BF16" else numbers
    raise ValueError("no tensor 'contexts' of floats")


def read_targets(path: Path) -> Array | None:
    """[n] whole numbers: an npy, or the tensor `targets` of a safetensors file, None where that has no such tensor.

    Raises NotFound, BadInput.
    """
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        targets = np.load(path, allow_pickle=False) if path.suffix == ".npy" else safetensors_targets(path)
    except (SafetensorError, ValueError, TypeError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: give {TARGETS_KIND}") from error
    if targets is not None and (targets.ndim != 1 or targets.dtype.kind not in "iu"):
        raise BadInput(f"targets of {path} are {targets.dtype} of shape {list(targets.shape)}: give [n] whole numbers")
    return targets


def safetensors_targets(path: Path) -> Array | None:
    """The tensor `targets` alone, or None."""
    with safetensors.safe_open(path, framework="numpy") as file:
        return file.get_tensor("targets") if "targets" in file.keys() else None


@dataclass(frozen=True)
class ContextRows:
    """Contexts [count, dim] that stay in their file; `rows` gives some of them."""

    path: Path
    count: int
    dim: int
    mapped: Callable[[], Array]
    bfloat16: bool = False  # numpy has no such type: these are the upper halves of float32

    def rows(self, start: int, stop: int) -> Array:
        """[stop - start, d] float32 or float16; raises BadInput.

        Mapped anew each time: pages that were read once would else count as this process's memory.
        """
        part = self.mapped()[start:stop]
        return to_float_array(f"contexts of {self.path}", widen_bfloat16(part) if self.bfloat16 else part)


def open_contexts(path: Path) -> ContextRows:
    """The contexts of a file of any size, memory-mapped; raises NotFound, BadInput."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        npy = path.suffix == ".npy"
        mapped = partial(np.load, path, mmap_mode="r", allow_pickle=False) if npy else mapped_safetensors(path)
        contexts = mapped()
    except (SafetensorError, ValueError, TypeError, KeyError, EOFError, OSError) as error:
        raise BadInput(f"{path} cannot be read: give {KIND}") from error
    if contexts.ndim != 2 or contexts.dtype.kind not in "fiu":
        raise BadInput(f"contexts of {path} are {contexts.dtype} {list(contexts.shape)}: give {KIND}")
    count, dim = contexts.shape
    return ContextRows(path, count, dim, mapped, bfloat16=not npy and contexts.dtype == DTYPES["BF16"])


def mapped_safetensors(path: Path) -> Callable[[], Array]:
    """A function that maps the tensor `contexts`; raises what safetensors raises, KeyError, ValueError."""
    with safetensors.safe_open(path, framework="numpy") as file:  # checks the header against the file's size
        if "contexts" not in file.keys():
            raise ValueError("no tensor 'contexts'")
    with path.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        entry = json.loads(content.read(length))["contexts"]
    shape, dtype = tuple(entry["shape"]), DTYPES[entry["dtype"]]
    if 0 in shape:
        return partial(np.empty, shape, dtype)
    return partial(np.memmap, path, dtype, "r", 8 + length + entry["data_offsets"][0], shape)
