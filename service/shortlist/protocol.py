"""The tensors of the Open Inference Protocol, shared by server and client: JSON header, then raw little-endian bytes.

https://github.com/kserve/open-inference-protocol with Triton's binary tensor data extension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import BadInput

LENGTH_HEADER = "Inference-Header-Content-Length"
JSON_TYPE = "application/json"
BINARY_TYPE = "application/octet-stream"

DTYPES: dict[str, str] = {"FP32": "<f4", "FP16": "<f2", "BF16": "<u2", "INT64": "<i8", "INT32": "<i4"}
NAMES = {
    np.dtype(np.float32): "FP32",
    np.dtype(np.float16): "FP16",
    np.dtype(np.int64): "INT64",
    np.dtype(np.int32): "INT32",
}
MOST_ELEMENTS = 1 << 40

Array = npt.NDArray[Any]


def described(name: str, array: Array) -> dict[str, Any]:
    """The JSON entry of a tensor, data left out."""
    return {"name": name, "datatype": NAMES[array.dtype], "shape": list(array.shape)}


def binary_entry(name: str, array: Array) -> dict[str, Any]:
    """The JSON entry of a tensor whose bytes follow the header."""
    return described(name, array) | {"parameters": {"binary_data_size": array.nbytes}}


def elements(name: str, shape: Any) -> int:
    """How many elements a shape holds; raises BadInput when it is none."""
    if not isinstance(shape, list) or not all(type(size) is int and size >= 0 for size in shape):
        raise BadInput(f"the shape of '{name}' must be a list of whole numbers from 0")
    count = math.prod(shape)
    if count > MOST_ELEMENTS:
        raise BadInput(f"the shape of '{name}' holds {count} elements: that is too many")
    return count


def from_bytes(entry: dict[str, Any], data: memoryview) -> Array:
    """A tensor as a view of its bytes; BF16 widens to float32. Raises BadInput when size and shape differ."""
    name, datatype = entry["name"], entry["datatype"]
    dtype = np.dtype(DTYPES[datatype])
    expected = elements(name, entry["shape"]) * dtype.itemsize
    if len(data) != expected:
        raise BadInput(f"input byte size mismatch for input '{name}'. Expected {expected}, got {len(data)}")
    array: Array = np.frombuffer(data, dtype).reshape(entry["shape"])
    return widened(array) if datatype == "BF16" else array


def widened(bfloat16: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """bfloat16 bits as float32: they are its upper half."""
    return (bfloat16.astype(np.uint32) << 16).view(np.float32)


def split_blobs(entries: Sequence[dict[str, Any]], blob: memoryview) -> list[memoryview | None]:
    """The bytes of each entry, in order, None where its data is in the JSON; raises BadInput on too few or too many."""
    parts: list[memoryview | None] = []
    position = 0
    for entry in entries:
        size = parameters_of(entry).get("binary_data_size")
        if size is None:
            parts.append(None)
            continue
        if type(size) is not int or size < 0 or position + size > len(blob):
            raise BadInput(f"the body ends before the binary_data_size of '{entry.get('name')}' is reached")
        parts.append(blob[position : position + size])
        position += size
    if position != len(blob):
        raise BadInput(f"unexpected additional input data: {len(blob) - position} bytes after the last tensor")
    return parts


def parameters_of(entry: dict[str, Any]) -> dict[str, Any]:
    """The `parameters` of a request, tensor or output; raises BadInput when they are no object."""
    parameters = entry.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise BadInput("parameters must be an object")
    return parameters
