"""Tensors of the Open Inference Protocol as bytes, for the server and the client alike.

A body is JSON followed by the bytes of its binary tensors in order, little-endian and without padding. The header
`Inference-Header-Content-Length` gives the length of the JSON; without that header the whole body is JSON. This is
the protocol's binary tensor data extension (github.com/triton-inference-server/server, docs/protocol).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shortlist.core.arrays import FLOAT32_CODE, FLOAT64_CODE, INT64_CODE, Array, align, parse_booleans, parse_numbers
from shortlist.core.checks import cut, is_count, parse_object
from shortlist.errors import BadInput

from .texts import split_texts

LENGTH_HEADER = "Inference-Header-Content-Length"
MAX_LENGTH_DIGITS = 20
MAX_DIMENSIONS = 8  # of a tensor: their product, and a sentence about it, would have as many digits as are sent
MAX_DIMENSION = 1 << 40  # more numbers than any memory holds
BINARY_TYPE = "application/octet-stream"
JSON_TYPE = "application/json"
CONTEXT, IDS, ALLOW, BAN = "context", "ids", "allow", "ban"
LOGPROBS, SCORED, LABELS, RISK, NAMES = "logprobs", "scored", "labels", "risk", "names"
BIAS, BIAS_IDS = "bias", "bias_ids"
OFFSETS, ROWS, LIST = "_offsets", "_rows", "_list"  # behind `allow` and `ban`: a table of lists, and its name
SCORES, FINISHED, EOS, FORCED, LENGTHS = "scores", "finished", "eos", "forced", "lengths"
TEMPERATURE, PARENTS = "temperature", "parents"
SEED, POSITION = "seed", "position"
WITHIN, WITHOUT = "within", "without"

DATATYPES: dict[str, np.dtype[Any]] = {
    "FP32": np.dtype("<f4"),
    "FP16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # numpy has no bfloat16: these are its bits, the upper half of a float32
    "INT64": np.dtype("<i8"),
    "INT32": np.dtype("<i4"),
    "FP64": np.dtype("<f8"),
    "BOOL": np.dtype(np.bool_),
}
DATATYPE_NAMES = {
    np.dtype(np.float32): "FP32",
    np.dtype(np.float16): "FP16",
    np.dtype(np.int64): "INT64",
    np.dtype(np.int32): "INT32",
    np.dtype(np.float64): "FP64",
    np.dtype(np.bool_): "BOOL",
}
LEAST_FLOAT32: np.float32 = np.finfo(np.float32).min  # stands for -inf in JSON, which cannot hold it
JSON_CODES = {"FP32": FLOAT32_CODE, "FP64": FLOAT64_CODE, "INT64": INT64_CODE, "INT32": INT64_CODE}


class SharedRegions(Protocol):
    """Registered regions of shared memory, which a request may name instead of carrying data; all raise BadInput."""

    def check_size(self, size: int) -> None:
        """Raise TooLarge where the inputs of one request may not have `size` bytes together."""

    def read(self, region: str, offset: int, size: int) -> memoryview:
        """Copy `size` bytes from `offset` on: their owner may go on writing there."""

    def write(self, region: str, offset: int, data: bytes) -> None:
        """Write `data` from `offset` on."""


class Region(NamedTuple):
    """A part of a registered region of shared memory: `offset` and `size` are in bytes."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a body, not parsed yet: its `raw` bytes, or `data` as JSON gave it.

    region: of shared memory that the bytes come from, whose values no error may show; None for a tensor of the body.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    raw: memoryview | None
    data: Any = None
    region: Region | None = None

    def to_array(self, model: str) -> Array:
        """Parse the numbers into an array of the announced shape; BF16 becomes float32.

        Binary numbers share the body's memory. Raises BadInput where count or datatype differ from what was announced.
        """
        if self.datatype not in DATATYPES:
            raise BadInput(f"datatype '{cut(self.datatype)}' of '{self.name}' is not one of {', '.join(DATATYPES)}")
        numbers = self.parse_json() if self.raw is None else self.parse_bytes(self.raw, model)
        try:
            return numbers.reshape(self.shape)
        except ValueError:  # no numbers, and a dimension that numpy cannot count
            raise BadInput(f"shape {list(self.shape)} of '{self.name}' is impossible") from None

    def to_texts(self) -> npt.NDArray[np.object_]:
        """Parse texts into an array of str of the announced shape; raises BadInput."""
        if self.raw is not None:
            return split_texts(self.raw, self.shape)
        texts = np.array([*(self.data if isinstance(self.data, list) else []), None], np.object_)[:-1]
        if not {str}.issuperset(map(type, texts)) or texts.size != math.prod(self.shape):
            raise BadInput(f"'{self.name}' must be a flat list of as many texts as its shape {list(self.shape)} says")
        return texts.reshape(self.shape)

    def parse_bytes(self, raw: memoryview, model: str) -> Array:
        """Parse the raw bytes into [n]; raises BadInput."""
        dtype = DATATYPES[self.datatype]
        size = math.prod(self.shape) * dtype.itemsize
        if len(raw) != size:
            raise BadInput(
                f"input byte size mismatch for input '{self.name}' for model '{model}'. Expected {size}, got {len(raw)}"
            )
        if self.datatype == "BOOL":
            return np.frombuffer(raw, np.uint8).astype(np.bool_)
        numbers = align(np.frombuffer(raw, dtype))
        if self.datatype == "BF16":
            return widen_bfloat16(numbers)
        return numbers

    def parse_json(self) -> Array:
        """Parse the JSON numbers, flat or nested, into [n]; raises BadInput."""
        if self.datatype != "BOOL" and self.datatype not in JSON_CODES:
            raise BadInput(f"'{self.name}' is {self.datatype}, which JSON cannot carry: send it as binary data")
        if self.datatype == "BOOL":
            numbers = parse_booleans(f"'{self.name}'", self.data)
        else:
            numbers = parse_numbers(f"'{self.name}'", self.data, JSON_CODES[self.datatype])
        if numbers.size != math.prod(self.shape):
            raise BadInput(f"'{self.name}' has {numbers.size} numbers for shape {list(self.shape)}")
        return numbers


def widen_bfloat16(bfloat16: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Convert bfloat16 bits to float32, of which they are the upper half."""
    return (bfloat16.astype(np.uint32) << 16).view(np.float32)


def split_body(body: bytes, header: str | None) -> tuple[memoryview, memoryview]:
    """Split a body into its JSON and its binary part, without a copy.

    header: value of `LENGTH_HEADER`, None if it was not sent. Raises BadInput if that is no length within the body.
    """
    whole, length = memoryview(body), parse_json_length(body, header)
    return whole[:length], whole[length:]


def parse_json_length(body: bytes, header: str | None) -> int:
    """Parse `header` as `split_body` does into the length of the JSON that `body` begins with; raises BadInput."""
    if header is None:
        return len(body)
    text = header.strip()
    if text.isascii() and text.isdigit() and len(text) < MAX_LENGTH_DIGITS and (length := int(text)) <= len(body):
        return length
    raise BadInput(f"{LENGTH_HEADER} is '{cut(header)}' but the body has {len(body)} bytes: give its JSON part")


def parse_tensors(
    entries: Any,
    binary: memoryview,
    model: str,
    memory: SharedRegions | None = None,
    known: Collection[str] | None = None,
) -> dict[str, Tensor]:
    """Parse `entries` (the JSON's `inputs` or `outputs`) into tensors by name, each with its part of `binary`.

    memory: the regions that entries may name, None where shared memory is not served; they are read once all else is
    checked. known: the names that tensors may have, None for all. Raises BadInput where an entry is malformed, a name
    is not known or occurs twice, or bytes are missing or left over; TooLarge for too much of shared memory.
    """
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput("inputs must be a list of objects with name, shape and datatype")
    tensors: dict[str, Tensor] = {}
    for entry in entries:
        tensor, binary = parse_tensor(entry, binary)
        if tensor.name in tensors:
            raise BadInput(f"input '{tensor.name}' already exists in request")
        if known is not None and tensor.name not in known:
            names = ", ".join(known)
            raise BadInput(f"unexpected inference input '{tensor.name}' for model '{model}': known are {names}")
        tensors[tensor.name] = tensor
    if binary:
        raise BadInput(f"unexpected additional input data for model '{model}'")
    return read_regions(tensors, memory)


def parse_tensor(entry: dict[str, Any], binary: memoryview) -> tuple[Tensor, memoryview]:
    """Parse one entry; returns its tensor, without the bytes of a region, and the rest of `binary`. Raises BadInput."""
    name, shape, datatype = entry.get("name"), entry.get("shape"), entry.get("datatype")
    if not isinstance(name, str) or not isinstance(datatype, str):
        raise BadInput("each input needs a name and a datatype, both text")
    name, sizes = cut(name), parse_shape(shape, cut(name))
    parameters = parse_object(entry, "parameters", f"'{name}'")
    region = parse_region(parameters, f"'{name}'")
    if region is not None:
        return Tensor(name, datatype, sizes, None, region=region), binary
    size = parameters.get("binary_data_size")
    if size is None:
        return Tensor(name, datatype, sizes, None, entry.get("data")), binary
    if not is_count(size) or size > len(binary):
        raise BadInput(f"binary_data_size of '{name}' is {cut(size)} but {len(binary)} bytes are left in the body")
    return Tensor(name, datatype, sizes, binary[:size]), binary[size:]


def parse_shape(shape: Any, name: str) -> tuple[int, ...]:
    """The shape of the tensor `name`; raises BadInput, also for more dimensions and larger ones than any array has."""
    if not isinstance(shape, list) or not all(is_count(size) for size in shape):
        raise BadInput(f"shape of '{name}' must be a list of whole numbers from 0")
    if len(shape) > MAX_DIMENSIONS:
        raise BadInput(f"shape of '{name}' has {len(shape)} dimensions: send {MAX_DIMENSIONS} at most")
    largest = max(shape, default=0)
    if largest > MAX_DIMENSION:
        raise BadInput(f"shape of '{name}' has a dimension of {cut(largest)}: send {MAX_DIMENSION} at most")
    return tuple(shape)


def parse_region(parameters: dict[str, Any], where: str) -> Region | None:
    """Parse the shared memory that an input's or output's `parameters` name, None for none; raises BadInput.

    where: the subject of the error's sentence.
    """
    name = parameters.get("shared_memory_region")
    if name is None:
        return None
    offset, size = parameters.get("shared_memory_offset", 0), parameters.get("shared_memory_byte_size")
    if not isinstance(name, str) or not is_count(offset) or not isinstance(size, int) or not is_count(size):
        raise BadInput(f"shared memory of {where} needs a region's name, shared_memory_byte_size and offset, in bytes")
    return Region(name, offset, size)


def read_regions(tensors: dict[str, Tensor], memory: SharedRegions | None) -> dict[str, Tensor]:
    """The tensors, those of shared memory with the bytes there now; raises BadInput, also where it is not served."""
    regions = {name: tensor.region for name, tensor in tensors.items() if tensor.region is not None}
    if not regions:
        return tensors
    if memory is None:
        raise BadInput("shared memory is not served: start the server with --shared-memory, or send data in the body")
    memory.check_size(sum(region.size for region in regions.values()))
    return tensors | {name: replace(tensors[name], raw=memory.read(*region)) for name, region in regions.items()}


def describe_tensor(name: str, values: Array, *, binary: bool) -> dict[str, Any]:
    """Return a tensor's JSON entry without its data: name, datatype, shape, and its size in bytes if it is binary."""
    return describe_shape(name, values.dtype, values.shape, binary=binary)


def describe_shape(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], *, binary: bool) -> dict[str, Any]:
    """Return the JSON entry of any tensor of this dtype and shape, as `describe_tensor`."""
    entry: dict[str, Any] = {"name": name, "datatype": DATATYPE_NAMES[dtype], "shape": list(shape)}
    if binary:
        entry["parameters"] = {"binary_data_size": math.prod(shape) * dtype.itemsize}
    return entry
