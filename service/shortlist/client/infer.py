"""Infer requests of the Open Inference Protocol, binary both ways, and what their responses hold; no I/O.

Requests of one shape begin with the same JSON, and so do their responses: each is written, or parsed, once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from shortlist.core.arrays import Array
from shortlist.core.checks import parse_object, parse_whole_number
from shortlist.errors import BadInput, ServerError
from shortlist.wire.open_inference import (
    BINARY_TYPE,
    DATATYPES,
    LENGTH_HEADER,
    Tensor,
    describe_shape,
    parse_json_length,
    parse_tensors,
)
from shortlist.wire.texts import TEXT_DATATYPE, join_texts, split_texts

from .messages import Request, Response, quote_name
from .responses import parse_json_object, raise_for_status

TEXT_DTYPE = np.dtype(np.object_)
LENGTH_KEY = LENGTH_HEADER.lower()
MAX_KNOWN_TEXTS = 256
MAX_KNOWN_TEXT_BYTES = 1024  # of a response's JSON worth remembering
NO_BYTES = memoryview(b"")
CONVERTED_DATATYPES = ("BF16", "BOOL")  # whose bytes are no numbers of numpy as they are
Shapes = tuple[tuple[str, np.dtype[Any], tuple[int, ...], int], ...]  # names, dtypes, shapes, bytes of tensors
Headers = tuple[tuple[str, str], ...]


class Numbers(NamedTuple):
    """Where the numbers of an output are: `start` bytes behind the JSON, aligned to their size or not."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    is_aligned: bool


class Layout(NamedTuple):
    """Where outputs are in a response.

    others: those that are not numbers as they are, without their bytes, and where these are in the body.
    """

    numbers: tuple[Numbers, ...]
    others: tuple[tuple[Tensor, slice], ...]
    parameters: dict[str, Any]


class Preparation(NamedTuple):
    """What requests of one shape have in common: their path, their JSON and their headers."""

    path: str
    text: bytes
    headers: Headers


def make_infer(
    model: str,
    version: int | None,
    inputs: Mapping[str, Array],
    parameters: Mapping[str, Any],
    outputs: tuple[str, ...] = (),
) -> Request:
    """One infer request; raises BadInput.

    parameters: text, and numbers of Python. outputs: names of those wanted; by default those of numbers.
    """
    if version is not None:
        version = parse_whole_number("version", version)
    shapes, buffers = [], []
    for name, values in inputs.items():
        buffer = view_bytes(values)
        shapes.append((name, values.dtype, values.shape, buffer.nbytes))
        buffers.append(buffer)
    path, text, headers = prepare_infer(model, version, tuple(shapes), tuple(parameters.items()), outputs)
    return Request("POST", path, (text, *buffers), headers)


def view_bytes(values: Array) -> memoryview:
    """The bytes of a tensor of numbers, copied only where the array has gaps, or of texts."""
    if values.dtype == TEXT_DTYPE:
        return memoryview(join_texts(values.reshape(-1)))
    buffer = values.data
    return buffer if buffer.c_contiguous else np.ascontiguousarray(values).data


@lru_cache(MAX_KNOWN_TEXTS)
def prepare_infer(
    model: str,
    version: int | None,
    shapes: Shapes,
    parameters: tuple[tuple[str, Any], ...],
    outputs: tuple[str, ...],
) -> Preparation:
    """What requests of one shape have in common."""
    content = {
        "parameters": dict(parameters) | {"binary_data_output": True},
        "inputs": [describe_input(*shape) for shape in shapes],
    } | ({"outputs": [{"name": name} for name in outputs]} if outputs else {})
    text = json.dumps(content).encode()
    part = "" if version is None else f"/versions/{version}"
    return Preparation(f"/v2/models/{quote_name('model', model)}{part}/infer", text, make_binary_headers(text))


def describe_input(name: str, dtype: np.dtype[Any], shape: tuple[int, ...], size: int) -> dict[str, Any]:
    """The JSON entry of a binary tensor of `size` bytes, of texts where its dtype is that of objects."""
    if dtype != TEXT_DTYPE:
        return describe_shape(name, dtype, shape, binary=True)
    return {"name": name, "datatype": TEXT_DATATYPE, "shape": list(shape), "parameters": {"binary_data_size": size}}


def make_binary_headers(text: bytes) -> Headers:
    """The headers of a body of binary tensors that begins with `text`."""
    return (("Content-Type", BINARY_TYPE), (LENGTH_HEADER, str(len(text))))


def read_infer(response: Response) -> tuple[dict[str, Array], dict[str, Any]]:
    """The outputs by name, and parameters, of which `normalizer` is one; raises the server's error, or ServerError."""
    return parse_outputs(raise_for_status(response))


def parse_outputs(response: Response) -> tuple[dict[str, Array], dict[str, Any]]:
    """Parse an infer response into its outputs by name, and its parameters; raises ServerError if it is none.

    The caller may write to the arrays.
    """
    try:
        length = parse_json_length(response.content, response.headers.get(LENGTH_KEY))
        parse = parse_layout if length <= MAX_KNOWN_TEXT_BYTES else parse_layout.__wrapped__
        layout = parse(response.content[:length], len(response.content) - length)
        binary = bytearray(memoryview(response.content)[length:])
        arrays: dict[str, Array] = {}
        for name, dtype, shape, start, is_aligned in layout.numbers:
            numbers: Array = np.ndarray(shape, dtype, binary, start)
            arrays[name] = numbers if is_aligned else numbers.copy()
        for tensor, part in layout.others:
            arrays[tensor.name] = read_other(tensor, memoryview(binary)[part])
        return arrays, layout.parameters
    except (BadInput, KeyError) as error:
        raise ServerError(f"the answer is not what a Shortlist server sends ({error}): check the URL") from error


@lru_cache(MAX_KNOWN_TEXTS)
def parse_layout(text: bytes, size: int) -> Layout:
    """Parse the JSON of a response with `size` bytes behind it; raises BadInput, KeyError and ServerError."""
    content = parse_json_object(text)
    tensors = parse_tensors(content.get("outputs"), memoryview(bytes(size)), str(content.get("model_name")))
    numbers, others, start = [], [], 0
    for tensor in tensors.values():
        stop = start + (0 if tensor.raw is None else len(tensor.raw))
        if tensor.raw is not None and tensor.datatype in DATATYPES and tensor.datatype not in CONVERTED_DATATYPES:
            tensor.to_array("")  # which checks its size
            dtype = DATATYPES[tensor.datatype]
            numbers.append(Numbers(tensor.name, dtype, tensor.shape, start, start % dtype.itemsize == 0))
        else:
            others.append((tensor if tensor.raw is None else replace(tensor, raw=NO_BYTES), slice(start, stop)))
        start = stop
    parameters = parse_object(content, "parameters", "the response")
    parameters["normalizer"] = str(parameters["normalizer"])
    return Layout(tuple(numbers), tuple(others), parameters)


def read_other(tensor: Tensor, raw: memoryview) -> Array:
    """An output's texts, or numbers that are not binary or have to be converted; raises BadInput.

    raw: its bytes in this response, where the tensor is binary.
    """
    if tensor.raw is None:
        return tensor.to_array("").copy()
    if tensor.datatype == TEXT_DATATYPE:
        return split_texts(raw, tensor.shape)
    return replace(tensor, raw=raw).to_array("").copy()
