"""The Open Inference Protocol's infer request and response, server side: bytes <-> arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from .arrays import Array
from .errors import BadInput
from .fields import flag, parse_json, whole
from .manifest import Manifest
from .protocol import (
    ALLOW,
    BAN,
    BINARY_TYPE,
    CONTEXT,
    IDS,
    JSON_TYPE,
    LENGTH_HEADER,
    LOGPROBS,
    SCORED,
    Tensor,
    cut,
    describe,
    join,
    mapping,
    split,
    tensors,
)
from .queries import Query, Result, ScoreQuery, TopKQuery

DEFAULT_K = 5  # generic clients and raw binary requests cannot always say k
LEAST = np.finfo(np.float32).min  # stands for -inf in JSON outputs, which cannot hold it
INPUTS = {CONTEXT: ("FP32", "FP16", "BF16"), ALLOW: ("INT64",), BAN: ("INT64",), IDS: ("INT64",)}
OUTPUTS = {IDS: "INT64", LOGPROBS: "FP32", SCORED: "INT32"}
NOT_SERVED = ("classification", "shared_memory_region")
RESERVED = "triton_"


@dataclass(frozen=True, slots=True)
class Infer:
    """A decoded request. outputs: name -> whether it is wanted as binary data, in the order of the answer."""

    id: str
    query: Query
    outputs: dict[str, bool]


def metadata(manifest: Manifest, versions: list[int]) -> dict[str, Any]:
    """The protocol's description of a model; `allow`, `ban` and `ids` are optional inputs."""
    inputs = [{"name": CONTEXT, "datatype": "FP32", "shape": [-1, manifest.dim]}]
    inputs += [{"name": name, "datatype": "INT64", "shape": [-1, -1]} for name in (ALLOW, BAN, IDS)]
    outputs = [
        {"name": name, "datatype": datatype, "shape": [-1] if name == SCORED else [-1, -1]}
        for name, datatype in OUTPUTS.items()
    ]
    return {
        "name": manifest.name,
        "versions": [str(version) for version in versions],
        "platform": "onnxruntime_onnx",
        "inputs": inputs,
        "outputs": outputs,
    }


def decode(body: bytes, header: str | None, manifest: Manifest) -> Infer:
    """One infer request for the model of `manifest`; raises BadInput.

    header: value of Inference-Header-Content-Length; `0` makes the whole body one float32 context vector.
    """
    text, binary = split(body, header)
    if not text and header is not None:
        return raw_request(binary, manifest)
    content = parse_json(text)
    given = tensors(content.get("inputs"), binary, manifest.name)
    parameters = mapping(content, "parameters", "the request")
    check_parameters(parameters)
    query = query_of(given, parameters, manifest)
    return Infer(identity(content), query, outputs_of(content, parameters, isinstance(query, ScoreQuery)))


def raw_request(binary: memoryview, manifest: Manifest) -> Infer:
    """The protocol's raw binary request: one context vector, no JSON; every output is binary."""
    tensor = Tensor(CONTEXT, "FP32", (1, manifest.dim), binary)
    query = TopKQuery(tensor.array(manifest.name), min(DEFAULT_K, manifest.max_k))
    return Infer("", query, dict.fromkeys(OUTPUTS, True))


def identity(content: dict[str, Any]) -> str:
    """The request's id, or nothing."""
    given = content.get("id", "")
    if not isinstance(given, str):
        raise BadInput("id must be text")
    return given


def check_parameters(parameters: dict[str, Any]) -> None:
    """Refuse names that the protocol reserves; other names that are not ours are ignored."""
    reserved = next((name for name in parameters if name.startswith(RESERVED)), None)
    if reserved is not None:
        raise BadInput(f"parameter '{cut(reserved)}' has the reserved prefix {RESERVED}: leave it out")


def query_of(given: dict[str, Tensor], parameters: dict[str, Any], manifest: Manifest) -> Query:
    """The question that the inputs ask: log-probabilities of `ids` where they are given, else the top k."""
    values = {name: input_array(tensor, manifest) for name, tensor in given.items()}
    if CONTEXT not in values:
        raise BadInput(f"input '{CONTEXT}' is missing: send FP32 of shape [rows, {manifest.dim}]")
    exact = flag(parameters, "exact")
    if IDS in values:
        if ALLOW in values or BAN in values:
            raise BadInput("input 'ids' asks for log-probabilities, which 'allow' and 'ban' do not change")
        return ScoreQuery(values[CONTEXT], values[IDS], exact)
    k = parameters.get("k", min(DEFAULT_K, manifest.max_k))
    return TopKQuery(values[CONTEXT], whole(k), values.get(ALLOW), values.get(BAN), exact)


def input_array(tensor: Tensor, manifest: Manifest) -> Array:
    """One input's numbers, checked against what the model takes."""
    if tensor.name not in INPUTS:
        raise BadInput(
            f"unexpected inference input '{tensor.name}' for model '{manifest.name}': known are {', '.join(INPUTS)}"
        )
    if tensor.datatype not in INPUTS[tensor.name]:
        raise BadInput(f"input '{tensor.name}' is {cut(tensor.datatype)}: send {' or '.join(INPUTS[tensor.name])}")
    if tensor.name == CONTEXT and (len(tensor.shape) != 2 or tensor.shape[1] != manifest.dim):
        raise BadInput(
            f"input '{CONTEXT}' has shape {cut(list(tensor.shape))} but model '{manifest.name}' takes "
            f"[rows, {manifest.dim}]"
        )
    if len(tensor.shape) not in (1, 2):
        raise BadInput(f"input '{tensor.name}' has {len(tensor.shape)} dimensions: send [m] or [rows, m]")
    return tensor.array(manifest.name)


def outputs_of(content: dict[str, Any], parameters: dict[str, Any], scoring: bool) -> dict[str, bool]:
    """The outputs that are wanted, and which of them as binary data."""
    binary = flag(parameters, "binary_data_output")
    known = (LOGPROBS, IDS) if scoring else tuple(OUTPUTS)
    wanted = content.get("outputs")
    if not wanted:
        return dict.fromkeys(known[:1] if scoring else known, binary)
    if not isinstance(wanted, list) or not all(isinstance(entry, dict) for entry in wanted):
        raise BadInput("outputs must be a list of objects with a name")
    outputs: dict[str, bool] = {}
    for entry in wanted:
        name = entry.get("name")
        if name not in known:
            raise BadInput(f"unexpected inference output '{cut(name)}': known are {', '.join(known)}")
        if name in outputs:
            raise BadInput(f"output '{name}' already exists in request")
        outputs[name] = wants_binary(entry, default=binary)
    return outputs


def wants_binary(entry: dict[str, Any], *, default: bool) -> bool:
    """Whether one requested output is to be binary; raises BadInput at what is not served."""
    parameters = mapping(entry, "parameters", f"output '{entry['name']}'")
    unserved = next((name for name in NOT_SERVED if name in parameters), None)
    if unserved is not None:
        raise BadInput(f"output parameter '{unserved}' is not served: leave it out")
    return flag({"binary_data": default} | parameters, "binary_data")


def encode(manifest: Manifest, request: Infer, result: Result) -> tuple[bytes, dict[str, str]]:
    """The response's body and headers."""
    values: dict[str, Array] = {name: getattr(result, name) for name in request.outputs}
    blobs = [values[name] for name, binary in request.outputs.items() if binary]
    content = {"id": request.id} if request.id else {}
    text = orjson.dumps(
        content
        | {
            "model_name": manifest.name,
            "model_version": str(manifest.version),
            "parameters": {"normalizer": result.normalizer},
            "outputs": [entry(name, values[name], binary=binary) for name, binary in request.outputs.items()],
        },
        option=orjson.OPT_SERIALIZE_NUMPY,
    )
    if not blobs:
        return text, {"Content-Type": JSON_TYPE}
    return join(text, blobs), {"Content-Type": BINARY_TYPE, LENGTH_HEADER: str(len(text))}


def entry(name: str, values: Array, *, binary: bool) -> dict[str, Any]:
    """One output; in JSON its numbers are flat, and -inf is the least float32."""
    described = describe(name, values, binary=binary)
    if not binary:
        flat = np.ascontiguousarray(values).reshape(-1)
        described["data"] = np.maximum(flat, LEAST) if name == LOGPROBS else flat
    return described
