"""The Open Inference Protocol's infer response, server side: arrays -> bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import orjson

from shortlist.bundle.manifest import Manifest
from shortlist.core.arrays import Array
from shortlist.core.checks import cut, is_count, parse_object
from shortlist.core.queries import Result
from shortlist.core.results import NO_CLASS, Labels
from shortlist.errors import BadInput
from shortlist.server.messages.headers import CONTENT_LENGTH, CONTENT_TYPE, LENGTH, Headers
from shortlist.server.messages.json_fields import flag
from shortlist.wire.open_inference import (
    BINARY_TYPE,
    IDS,
    JSON_TYPE,
    LOGPROBS,
    SCORED,
    Region,
    SharedRegions,
    describe_tensor,
    parse_region,
)

OUTPUTS = {IDS: "INT64", LOGPROBS: "FP32", SCORED: "INT32"}
LEAST = np.finfo(np.float32).min  # stands for -inf in JSON outputs, which cannot hold it


class Wanted(NamedTuple):
    """How one output is wanted. classes: so many as `value:index:label` text (the classification extension)."""

    binary: bool
    classes: int = 0
    region: Region | None = None

    @property
    def plain(self) -> bool:
        """Whether the output's text follows from its shape alone."""
        return self.binary and not self.classes and self.region is None


@dataclass(frozen=True, slots=True)
class Prepared:
    """Text and headers of answers of one shape, all outputs binary."""

    text: bytes
    headers: Headers
    outputs: tuple[str, ...]

    def filled(self, result: Result) -> tuple[bytes, Headers]:
        """The answer with these numbers."""
        blobs = map(getattr, repeat(result), self.outputs)
        try:
            return b"".join((self.text, *blobs)), self.headers
        except TypeError:  # some of it is a view with gaps
            return b"".join((self.text, *(getattr(result, name).tobytes() for name in self.outputs))), self.headers


def prepared(manifest: Manifest, identity: str, outputs: Mapping[str, Wanted], result: Result) -> Prepared:
    """What answers of this result's shape share."""
    described = [describe_tensor(name, getattr(result, name), binary=True) for name in outputs]
    text = answer_text(manifest, identity, described, result)
    size = len(text) + sum(getattr(result, name).nbytes for name in outputs)
    return Prepared(text, [*binary_headers(text), (CONTENT_LENGTH, str(size).encode())], tuple(outputs))


def binary_headers(text: bytes) -> Headers:
    """Of a body that begins with `text`."""
    return [(CONTENT_TYPE, BINARY_TYPE.encode()), (LENGTH, str(len(text)).encode())]


def answer_text(manifest: Manifest, identity: str, outputs: list[dict[str, Any]], result: Result) -> bytes:
    """The JSON of an answer."""
    content: dict[str, Any] = {"id": identity} if identity else {}
    content |= {
        "model_name": manifest.name,
        "model_version": str(manifest.version),
        "parameters": {"normalizer": result.normalizer},
        "outputs": outputs,
    }
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def wanted_outputs(content: dict[str, Any], binary: bool, scoring: bool) -> dict[str, Wanted]:
    """The outputs that are wanted, in the order of the answer; raises BadInput."""
    known = (LOGPROBS, IDS) if scoring else tuple(OUTPUTS)
    entries = content.get("outputs")
    if not entries:
        return dict.fromkeys(known[:1] if scoring else known, Wanted(binary))
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput("outputs must be a list of objects with a name")
    outputs: dict[str, Wanted] = {}
    for entry in entries:
        name = entry.get("name")
        if name not in known:
            raise BadInput(f"unexpected inference output '{cut(name)}': known are {', '.join(known)}")
        if name in outputs:
            raise BadInput(f"output '{name}' already exists in request")
        outputs[name] = wanted_output(entry, binary, scoring)
    return outputs


def wanted_output(entry: dict[str, Any], binary: bool, scoring: bool) -> Wanted:
    """One requested output; raises BadInput."""
    name = entry["name"]
    parameters = parse_object(entry, "parameters", f"output '{name}'")
    region, classes = parse_region(parameters, f"output '{name}'"), parameters.get("classification", 0)
    if not is_count(classes):
        raise BadInput(f"classification of '{name}' is {cut(classes)}: send a whole number from 0")
    if classes and (scoring or name != LOGPROBS):
        raise BadInput(f"output '{name}' cannot be classified: ask for the classification of '{LOGPROBS}'")
    if classes and region is not None:
        raise BadInput(f"classification of '{name}' cannot be put into shared memory: leave out one of the two")
    return Wanted(flag({"binary_data": binary} | parameters, "binary_data"), classes, region)


def encode(
    manifest: Manifest,
    identity: str,
    outputs: Mapping[str, Wanted],
    result: Result,
    labels: Labels | None,
    memory: SharedRegions | None,
) -> tuple[bytes, Headers]:
    """The response's body and headers."""
    described, blobs = [], []
    for name, wanted in outputs.items():
        if wanted.classes:
            entry, blob = classified(result, wanted, labels)
        else:
            entry, blob = numbers(name, getattr(result, name), wanted, memory)
        described.append(entry)
        blobs.append(blob)
    text = answer_text(manifest, identity, described, result)
    if not any(wanted.binary and wanted.region is None for wanted in outputs.values()):
        return text, [(CONTENT_TYPE, JSON_TYPE.encode())]
    return b"".join([text, *blobs]), binary_headers(text)


def numbers(name: str, values: Array, wanted: Wanted, memory: SharedRegions | None) -> tuple[dict[str, Any], bytes]:
    """One output's entry and its bytes; in JSON its numbers are flat, and -inf is the least float32."""
    if wanted.region is not None:
        return in_region(name, values, wanted.region, memory), b""
    entry = describe_tensor(name, values, binary=wanted.binary)
    if wanted.binary:
        return entry, values.tobytes()
    flat = np.ascontiguousarray(values).reshape(-1)
    return entry | {"data": np.maximum(flat, LEAST) if name == LOGPROBS else flat}, b""


def in_region(name: str, values: Array, region: Region, memory: SharedRegions | None) -> dict[str, Any]:
    """Put an output into shared memory; raises BadInput where it does not fit."""
    content = values.tobytes()
    if memory is None:
        raise BadInput("shared memory is not served: start the server with --shared-memory, or send data in the body")
    if len(content) > region.size:
        raise BadInput(f"output '{name}' has {len(content)} bytes and {region.size} were given in '{cut(region.name)}'")
    memory.write(region.name, region.offset, content)
    entry = describe_tensor(name, values, binary=False)
    place = {"shared_memory_region": region.name, "shared_memory_byte_size": len(content)}
    return entry | {"parameters": place | ({"shared_memory_offset": region.offset} if region.offset else {})}


def classified(result: Result, wanted: Wanted, labels: Labels | None) -> tuple[dict[str, Any], bytes]:
    """The best classes of each row as `value:index` or `value:index:label`, best first."""
    assert wanted.classes <= result.ids.shape[1]
    rows = zip(result.ids[:, : wanted.classes].tolist(), result.logprobs[:, : wanted.classes].tolist(), strict=True)
    texts = [class_text(value, id, labels) for ids, values in rows for id, value in zip(ids, values, strict=True)]
    entry: dict[str, Any] = {"name": LOGPROBS, "datatype": "BYTES", "shape": [len(result.ids), wanted.classes]}
    if not wanted.binary:
        return entry | {"data": texts}, b""
    content = b"".join(len(text).to_bytes(4, "little") + text for text in (text.encode() for text in texts))
    return entry | {"parameters": {"binary_data_size": len(content)}}, content


def class_text(value: float, id: int, labels: Labels | None) -> str:
    """Nine digits tell any two float32 apart."""
    text = f"{value:.9g}:{id}"
    return text if labels is None or id == NO_CLASS else f"{text}:{labels[id]}"
