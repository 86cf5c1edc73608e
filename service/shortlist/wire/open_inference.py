"""The Open Inference Protocol's tensors on the wire, as both server and client need them.

A body is JSON, then the bytes of its binary tensors in order, little-endian, without padding. The header
`Inference-Header-Content-Length` says where the JSON ends; without it the whole body is JSON.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shortlist.core.arrays import FLOAT32_CODE, INT64_CODE, Array, parse_numbers
from shortlist.core.checks import cut, is_count, parse_object
from shortlist.errors import BadInput

LENGTH_HEADER = "Inference-Header-Content-Length"
BINARY_TYPE = "application/octet-stream"
JSON_TYPE = "application/json"
CONTEXT, IDS, ALLOW, BAN = "context", "ids", "allow", "ban"
LOGPROBS, SCORED = "logprobs", "scored"

DATATYPES: dict[str, np.dtype[Any]] = {
    "FP32": np.dtype("<f4"),
    "FP16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # the upper half of a float32
    "INT64": np.dtype("<i8"),
    "INT32": np.dtype("<i4"),
}
DATATYPE_NAMES = {
    np.dtype(np.float32): "FP32",
    np.dtype(np.float16): "FP16",
    np.dtype(np.int64): "INT64",
    np.dtype(np.int32): "INT32",
}
JSON_CODES = {"FP32": FLOAT32_CODE, "INT64": INT64_CODE, "INT32": INT64_CODE}


class SharedRegions(Protocol):
    """Shared memory that requests may name instead of carrying data; raises BadInput."""

    def read(self, region: str, offset: int, size: int) -> memoryview:
        """A copy of `size` bytes from `offset` on: its owner may write on."""

    def write(self, region: str, offset: int, data: bytes) -> None:
        """Put bytes there."""


class Region(NamedTuple):
    """A part of a registered region, in bytes."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as it came: `raw` bytes, or `data` from JSON."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    raw: memoryview | None
    data: Any = None

    def to_array(self, model: str) -> Array:
        """Its numbers in the shape that it announces; BF16 as float32. Binary ones share the body's memory.

        Raises BadInput when their count or kind is not what was announced.
        """
        if self.datatype not in DATATYPES:
            raise BadInput(f"datatype '{cut(self.datatype)}' of '{self.name}' is not one of {', '.join(DATATYPES)}")
        numbers = self.parse_json() if self.raw is None else self.parse_bytes(self.raw, model)
        try:
            return numbers.reshape(self.shape)
        except ValueError:  # no numbers, and a dimension that numpy cannot count
            raise BadInput(f"shape {list(self.shape)} of '{self.name}' is impossible") from None

    def parse_bytes(self, raw: memoryview, model: str) -> Array:
        """[n] from the wire."""
        dtype = DATATYPES[self.datatype]
        expected = math.prod(self.shape) * dtype.itemsize
        if len(raw) != expected:
            raise BadInput(
                f"input byte size mismatch for input '{self.name}' for model '{model}'. "
                f"Expected {expected}, got {len(raw)}"
            )
        numbers = align(np.frombuffer(raw, dtype))
        if self.datatype == "BF16":
            return widen_bfloat16(numbers)
        return numbers

    def parse_json(self) -> Array:
        """[n] from JSON."""
        if self.datatype not in JSON_CODES:
            raise BadInput(f"'{self.name}' is {self.datatype}, which JSON cannot carry: send it as binary data")
        numbers = parse_numbers(f"'{self.name}'", self.data, JSON_CODES[self.datatype])
        if numbers.size != math.prod(self.shape):
            raise BadInput(f"'{self.name}' has {numbers.size} numbers for shape {list(self.shape)}")
        return numbers


def align(numbers: Array) -> Array:
    """The same numbers where runtimes want them."""
    return numbers if numbers.flags.aligned else numbers.copy()


def widen_bfloat16(bfloat16: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """bfloat16 bits as float32: they are its upper half."""
    return (bfloat16.astype(np.uint32) << 16).view(np.float32)


def split_body(body: bytes, header: str | None) -> tuple[memoryview, memoryview]:
    """The JSON and the binary part of a body; raises BadInput when the header is no length inside it."""
    whole = memoryview(body)
    if header is None:
        return whole, whole[len(whole) :]
    text = header.strip()
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) > len(whole):
        raise BadInput(f"{LENGTH_HEADER} is '{cut(header)}' but the body has {len(whole)} bytes: give its JSON part")
    return whole[: int(text)], whole[int(text) :]


def parse_tensors(
    entries: Any, binary: memoryview, model: str, memory: SharedRegions | None = None
) -> dict[str, Tensor]:
    """The tensors that `entries` (`inputs` or `outputs`) describe, by name, each with its part of `binary`.

    memory: where entries may say that their bytes are. Raises BadInput when an entry is malformed or bytes are
    missing or left over.
    """
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput("inputs must be a list of objects with name, shape and datatype")
    found: dict[str, Tensor] = {}
    for entry in entries:
        tensor, binary = parse_tensor(entry, binary, memory)
        if tensor.name in found:
            raise BadInput(f"input '{tensor.name}' already exists in request")
        found[tensor.name] = tensor
    if binary:
        raise BadInput(f"unexpected additional input data for model '{model}'")
    return found


def parse_tensor(entry: dict[str, Any], binary: memoryview, memory: SharedRegions | None) -> tuple[Tensor, memoryview]:
    """One tensor, and what is left of `binary`."""
    name, shape, datatype = entry.get("name"), entry.get("shape"), entry.get("datatype")
    if not isinstance(name, str) or not isinstance(datatype, str):
        raise BadInput("each input needs a name and a datatype, both text")
    name = cut(name)
    if not isinstance(shape, list) or not all(is_count(size) for size in shape):
        raise BadInput(f"shape of '{name}' must be a list of whole numbers from 0")
    parameters = parse_object(entry, "parameters", f"'{name}'")
    region = parse_region(parameters, f"'{name}'")
    if region is not None:
        return Tensor(name, datatype, tuple(shape), read_region(region, memory)), binary
    size = parameters.get("binary_data_size")
    if size is None:
        return Tensor(name, datatype, tuple(shape), None, entry.get("data")), binary
    if not is_count(size) or size > len(binary):
        raise BadInput(f"binary_data_size of '{name}' is {cut(size)} but {len(binary)} bytes are left in the body")
    return Tensor(name, datatype, tuple(shape), binary[:size]), binary[size:]


def parse_region(parameters: dict[str, Any], where: str) -> Region | None:
    """The shared memory that an input or output names; raises BadInput."""
    name = parameters.get("shared_memory_region")
    if name is None:
        return None
    offset, size = parameters.get("shared_memory_offset", 0), parameters.get("shared_memory_byte_size")
    if not isinstance(name, str) or not is_count(offset) or not isinstance(size, int) or not is_count(size):
        raise BadInput(f"shared memory of {where} needs a region's name, shared_memory_byte_size and offset, in bytes")
    return Region(name, offset, size)


def read_region(region: Region, memory: SharedRegions | None) -> memoryview:
    """What is there now; raises BadInput where shared memory is not served."""
    if memory is None:
        raise BadInput("shared memory is not served: start the server with --shared-memory, or send data in the body")
    return memory.read(region.name, region.offset, region.size)


def describe_tensor(name: str, values: Array, *, binary: bool) -> dict[str, Any]:
    """The JSON entry of a tensor, without the data."""
    entry: dict[str, Any] = {"name": name, "datatype": DATATYPE_NAMES[values.dtype], "shape": list(values.shape)}
    if binary:
        entry["parameters"] = {"binary_data_size": values.nbytes}
    return entry


def join_body(header: bytes, arrays: Iterable[Array]) -> bytes:
    """JSON and binary tensors as one body."""
    return b"".join([header, *(values.tobytes() for values in arrays)])
