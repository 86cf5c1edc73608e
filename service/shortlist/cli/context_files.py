"""Contexts and targets from npy and safetensors files, read without torch."""

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
from shortlist.core.checks import check_file
from shortlist.errors import BadInput
from shortlist.evaluation.kinds import find_kind_rows, parse_kinds
from shortlist.wire.open_inference import DATATYPES, widen_bfloat16

SAFETENSORS_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "F64": np.dtype("<f8"),
    "BF16": DATATYPES["BF16"],
}
CONTEXTS_FORMAT = "an npy file of [n, d] numbers, or a safetensors file with a tensor 'contexts'"
TARGETS_FORMAT = "an npy file of [n] whole numbers, or a safetensors file with a tensor 'targets'"


def read_contexts(path: Path) -> Array:
    """Contexts [n, d] float32 or float16, mapped as far as the file holds them so; raises NotFound, BadInput."""
    contexts = open_contexts(path)
    return contexts.read_rows(0, contexts.count)


def read_targets(path: Path) -> Array | None:
    """Read targets [n], gold class ids, from an npy file or the tensor `targets` of a safetensors file.

    Returns None where a safetensors file has no such tensor. Raises NotFound, BadInput.
    """
    check_file(path)
    try:
        targets = np.load(path, allow_pickle=False) if path.suffix == ".npy" else read_safetensors_targets(path)
    except (SafetensorError, ValueError, TypeError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: give {TARGETS_FORMAT}") from error
    if targets is not None and (targets.ndim != 1 or targets.dtype.kind not in "iu"):
        raise BadInput(f"targets of {path} are {targets.dtype} of shape {list(targets.shape)}: give [n] whole numbers")
    return targets


def read_safetensors_targets(path: Path) -> Array | None:
    """Read the tensor `targets` alone, None where there is none; raises SafetensorError."""
    with path.open("rb"), safetensors.safe_open(path, framework="numpy") as file:
        return file.get_tensor("targets") if "targets" in file.keys() else None


def read_kinds(path: Path, documents: Array | None) -> dict[str, Array]:
    """Read positions of the rows of each kind of text, by the `documents` [n] of the rows; {} where no kinds are named.

    Raises NotFound, BadInput.
    """
    if path.suffix == ".npy":
        return {}
    with safetensors.safe_open(path, framework="numpy") as file:
        kinds = parse_kinds(file.metadata() or {}, path)
    return {} if documents is None else find_kind_rows(documents, kinds)


def read_documents(path: Path) -> Array | None:
    """Read the document of each row [n], None where the file does not say. Raises NotFound, BadInput."""
    if path.suffix == ".npy":
        return None
    with safetensors.safe_open(path, framework="numpy") as file:
        documents: Array | None = file.get_tensor("documents") if "documents" in file.keys() else None
        count = file.get_slice("contexts").get_shape()[0]
    if documents is not None and (documents.shape != (count,) or documents.dtype.kind not in "iu"):
        shape = list(documents.shape)
        raise BadInput(f"documents of {path} are {documents.dtype} of shape {shape}: give [{count}] whole numbers")
    return documents


@dataclass(frozen=True)
class ContextFile:
    """Contexts [count, dim] that stay in their file until `read_rows` reads some; `map_file` maps the file."""

    path: Path
    count: int
    dim: int
    map_file: Callable[[], Array]
    bfloat16: bool = False  # which numpy lacks: mapped as uint16, the upper halves of float32

    def read_rows(self, start: int, stop: int) -> Array:
        """Read rows start to stop - 1 as [stop - start, d] float32 or float16; raises BadInput.

        The file is mapped anew each time: pages of an older mapping count as this process's memory once they are read.
        """
        part = self.map_file()[start:stop]
        return to_float_array(f"contexts of {self.path}", widen_bfloat16(part) if self.bfloat16 else part)


def open_contexts(path: Path) -> ContextFile:
    """Open the contexts of a file of any size without reading them; raises NotFound, BadInput."""
    check_file(path)
    try:
        npy = path.suffix == ".npy"
        map_file = partial(np.load, path, mmap_mode="r", allow_pickle=False) if npy else map_safetensors(path)
        contexts = map_file()
    except (SafetensorError, ValueError, TypeError, KeyError, EOFError) as error:
        raise BadInput(f"{path} cannot be read: give {CONTEXTS_FORMAT}") from error
    if contexts.ndim != 2 or contexts.dtype.kind not in "fiu":
        raise BadInput(f"contexts of {path} are {contexts.dtype} {list(contexts.shape)}: give {CONTEXTS_FORMAT}")
    count, dim = contexts.shape
    return ContextFile(path, count, dim, map_file, bfloat16=not npy and contexts.dtype == SAFETENSORS_DTYPES["BF16"])


def map_safetensors(path: Path) -> Callable[[], Array]:
    """Return a function that maps the tensor `contexts`; raises SafetensorError, KeyError, ValueError."""
    with path.open("rb") as content:
        with safetensors.safe_open(path, framework="numpy") as file:  # checks the header against the file's size
            if "contexts" not in file.keys():
                raise ValueError("no tensor 'contexts'")
        length = int.from_bytes(content.read(8), "little")
        entry = json.loads(content.read(length))["contexts"]
    shape, dtype = tuple(entry["shape"]), SAFETENSORS_DTYPES[entry["dtype"]]
    if 0 in shape:
        return partial(np.empty, shape, dtype)
    return partial(np.memmap, path, dtype, "r", 8 + length + entry["data_offsets"][0], shape)
