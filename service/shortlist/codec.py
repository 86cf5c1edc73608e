"""`/v2/.../infer` bodies to arrays and back, on the server. Arrays are views of the received bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from .errors import BadInput
from .manifest import Manifest
from .protocol import (
    BINARY_TYPE,
    DTYPES,
    JSON_TYPE,
    LENGTH_HEADER,
    Array,
    binary_entry,
    described,
    elements,
    from_bytes,
    parameters_of,
    split_blobs,
)
from .result import TopK

DEFAULT_K = 10
OUTPUTS = ("ids", "logprobs", "scored")
INPUTS = {"context": ("FP32", "FP16", "BF16"), "allow": ("INT64",), "ban": ("INT64",)}
LEAST = np.float32(-3.4028235e38)  # JSON has no -inf; a reader that knows float32 takes this for it


@dataclass(frozen=True)
class InferRequest:
    """One decoded request; `outputs` are (name, binary) in the order asked for."""

    contexts: Array
    k: int
    exact: bool = False
    allow: Array | None = None
    ban: Array | None = None
    id: str = ""
    outputs: list[tuple[str, bool]] = field(default_factory=lambda: [(name, False) for name in OUTPUTS])


def load_object(body: bytes | memoryview) -> dict[str, Any]:
    """A JSON object; raises BadInput when the body is anything else, however deep."""
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadInput(f"the body is not JSON that can be read ({str(error).partition(':')[0]})") from None
    if not isinstance(content, dict):
        raise BadInput("the body must be a JSON object")
    return content


def header_length(value: str | None, body: bytes) -> int | None:
    """The JSON part's length in bytes, None where the whole body is JSON; raises BadInput."""
    if value is None:
        return None
    if not value.isascii() or not value.isdigit() or int(value) > len(body):
        raise BadInput(f"{LENGTH_HEADER} is '{value}' for a body of {len(body)} bytes: give the JSON part's length")
    return int(value)


def decode(manifest: Manifest, body: bytes, length: str | None) -> InferRequest:
    """The request in `body`; `length` is the value of Inference-Header-Content-Length. Raises BadInput."""
    size = header_length(length, body)
    if size == 0:
        return raw_request(manifest, body)
    content = load_object(body if size is None else memoryview(body)[:size])
    tensors = decode_inputs(content.get("inputs"), memoryview(body)[len(body) if size is None else size :])
    if "context" not in tensors:
        raise BadInput(f"the input 'context' [-1, {manifest.dim}] is missing")
    parameters = parameters_of(content)
    return InferRequest(
        tensors["context"],
        whole_number(parameters, "k", min(DEFAULT_K, manifest.max_k)),
        truth_value(parameters, "exact", default=False),
        tensors.get("allow"),
        tensors.get("ban"),
        identifier(content),
        requested(content, parameters),
    )


def raw_request(manifest: Manifest, body: bytes) -> InferRequest:
    """A body that is one context vector in FP32 and nothing else; every output binary."""
    entry = {"name": "context", "datatype": "FP32", "shape": [1, manifest.dim]}
    contexts = from_bytes(entry, memoryview(body))
    return InferRequest(contexts, min(DEFAULT_K, manifest.max_k), outputs=[(name, True) for name in OUTPUTS])


def decode_inputs(entries: Any, blob: memoryview) -> dict[str, Array]:
    """Name -> array; raises BadInput naming the tensor that is wrong."""
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput("inputs must be a list of tensors")
    tensors: dict[str, Array] = {}
    for entry, data in zip(entries, split_blobs(entries, blob), strict=True):
        name = checked_name(entry, tensors)
        tensors[name] = from_json(entry) if data is None else from_bytes(entry, data)
    return tensors


def checked_name(entry: dict[str, Any], seen: dict[str, Array]) -> str:
    """An input's name; raises BadInput on an unknown or repeated one, or another datatype."""
    name, datatype = entry.get("name"), entry.get("datatype")
    if not isinstance(name, str) or name not in INPUTS:
        raise BadInput(f"there is no input '{name}': the inputs are {', '.join(INPUTS)}")
    if name in seen:
        raise BadInput(f"input '{name}' is given twice")
    if datatype not in INPUTS[name]:
        raise BadInput(f"input '{name}' has datatype {datatype}: give {' or '.join(INPUTS[name])}")
    return name


def from_json(entry: dict[str, Any]) -> Array:
    """A tensor from its `data`, flat or nested; raises BadInput."""
    name, datatype = entry["name"], entry["datatype"]
    if datatype in ("FP16", "BF16"):
        raise BadInput(f"input '{name}' is {datatype}, which JSON cannot carry: send it as binary data")
    if "data" not in entry:
        raise BadInput(f"input '{name}' has neither data nor a binary_data_size")
    count = elements(name, entry.get("shape"))
    array = numbers(f"data of input '{name}'", entry["data"], DTYPES[datatype])
    if array.size != count:
        raise BadInput(f"input '{name}' has {array.size} elements but its shape {entry['shape']} holds {count}")
    return array.reshape(entry["shape"])


def numbers(what: str, values: Any, dtype: str) -> Array:
    """A nested list of numbers as an array of `dtype`; raises BadInput on anything else."""
    try:
        array = np.asarray(values)
    except ValueError:
        raise BadInput(f"{what} has rows of different lengths: give a rectangle of numbers") from None
    allowed = "iu" if np.dtype(dtype).kind == "i" else "iuf"
    if array.size and array.dtype.kind not in allowed:
        raise BadInput(f"{what} must be {'whole numbers' if allowed == 'iu' else 'numbers'} throughout")
    with np.errstate(over="ignore"):  # becomes infinite, which the head refuses by row
        return array.astype(dtype)


def whole_number(parameters: dict[str, Any], name: str, default: int) -> int:
    """An integer parameter; raises BadInput."""
    value = parameters.get(name, default)
    if type(value) is not int:
        raise BadInput(f"parameter {name} must be a whole number")
    return value


def truth_value(parameters: dict[str, Any], name: str, *, default: bool) -> bool:
    """A boolean parameter; raises BadInput."""
    value = parameters.get(name, default)
    if type(value) is not bool:
        raise BadInput(f"parameter {name} must be true or false")
    return value


def identifier(content: dict[str, Any]) -> str:
    """The request's id, echoed exactly; raises BadInput when it is no string."""
    value = content.get("id", "")
    if not isinstance(value, str):
        raise BadInput("id must be a string")
    return value


def requested(content: dict[str, Any], parameters: dict[str, Any]) -> list[tuple[str, bool]]:
    """(name, binary) of each output asked for, all of them by default; raises BadInput."""
    binary = truth_value(parameters, "binary_data_output", default=False)
    entries = content.get("outputs")
    if not entries:
        return [(name, binary) for name in OUTPUTS]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput("outputs must be a list of objects")
    chosen: list[tuple[str, bool]] = []
    for entry in entries:
        name = entry.get("name")
        if name not in OUTPUTS:
            raise BadInput(f"there is no output '{name}': the outputs are {', '.join(OUTPUTS)}")
        if any(name == earlier for earlier, _ in chosen):
            raise BadInput(f"output '{name}' already exists in request")
        chosen.append((name, truth_value(parameters_of(entry), "binary_data", default=binary)))
    return chosen


def encode(request: InferRequest, top: TopK, manifest: Manifest) -> tuple[bytes, dict[str, str]]:
    """Body and headers of the response."""
    entries, blobs = [], []
    for name, binary in request.outputs:
        array: Array = np.ascontiguousarray(getattr(top, name))
        if binary:
            entries.append(binary_entry(name, array))
            blobs.append(array.data.cast("B") if array.size else b"")
        else:
            entries.append(described(name, array) | {"data": finite(array).reshape(-1)})
    header = {"id": request.id} if request.id else {}
    content = header | {
        "model_name": manifest.name,
        "model_version": str(manifest.version),
        "parameters": {"normalizer": top.normalizer},
        "outputs": entries,
    }
    text = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    if not any(binary for _, binary in request.outputs):
        return text, {"content-type": JSON_TYPE}
    return b"".join([text, *blobs]), {"content-type": BINARY_TYPE, LENGTH_HEADER: str(len(text))}


def finite(array: Array) -> Array:
    """-inf as the least float32; other arrays as they are."""
    return np.maximum(array, LEAST) if array.dtype.kind == "f" else array


def metadata(manifest: Manifest, versions: list[int]) -> dict[str, Any]:
    """The model metadata of the protocol."""
    shapes = {"context": [-1, manifest.dim], "allow": [-1, -1], "ban": [-1, -1]}
    return {
        "name": manifest.name,
        "versions": [str(version) for version in versions],
        "platform": "onnxruntime_onnx",
        "inputs": [{"name": name, "datatype": INPUTS[name][0], "shape": shape} for name, shape in shapes.items()],
        "outputs": [
            {"name": "ids", "datatype": "INT64", "shape": [-1, -1]},
            {"name": "logprobs", "datatype": "FP32", "shape": [-1, -1]},
            {"name": "scored", "datatype": "INT32", "shape": [-1]},
        ],
    }
