"""The Open Inference Protocol's infer response, server side: arrays -> bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import orjson

from shortlist.bundle.manifest import Manifest
from shortlist.core.arrays import Array
from shortlist.core.checks import cut, is_count, parse_object, show
from shortlist.core.queries import Result, Scores
from shortlist.core.results import IdArray, ReadTexts, TopK
from shortlist.errors import BadInput
from shortlist.server.messages.compression import IDENTITY_ENCODING, MIN_COMPRESSED_BYTES, choose_encoding, compress
from shortlist.server.messages.headers import (
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    JSON_LENGTH,
    EncodedResponse,
    Headers,
    make_length_header,
)
from shortlist.server.messages.json_fields import read_flag
from shortlist.server.messages.json_pieces import make_json_list
from shortlist.wire.open_inference import (
    BINARY_TYPE,
    IDS,
    JSON_TYPE,
    LABELS,
    LEAST_FLOAT32,
    LOGPROBS,
    NAMES,
    PARENTS,
    RISK,
    SCORED,
    SCORES,
    Region,
    SharedRegions,
    describe_tensor,
    parse_region,
)
from shortlist.wire.texts import TEXT_DATATYPE, join_texts

from .promises import read_promise
from .v2_query import Kind

OUTPUT_DATATYPES: dict[Kind, dict[str, str]] = {  # of a request that names no outputs
    "topk": {IDS: "INT64", LOGPROBS: "FP32", SCORED: "INT32"},
    "sample": {IDS: "INT64", LOGPROBS: "FP32", SCORED: "INT32"},
    "score": {LOGPROBS: "FP32"},
    "beam": {PARENTS: "INT32", IDS: "INT64", SCORES: "FP64", LOGPROBS: "FP32"},
}
MORE_OUTPUTS: dict[Kind, tuple[str, ...]] = {
    "topk": (LABELS, RISK, SCORES, NAMES),
    "sample": (LABELS, NAMES),
    "score": (IDS,),
    "beam": (),
}  # that it may name
TEXTS = (LABELS, NAMES)
VARY = (b"vary", b"accept-encoding")


class OutputFormat(NamedTuple):
    """How one output is wanted. classes: so many as `value:index:label` text (the classification extension).

    texts: the output is made of texts, of any lengths.
    """

    binary: bool
    classes: int = 0
    region: Region | None = None
    texts: bool = False

    @property
    def plain(self) -> bool:
        """Whether the output's entry in the JSON follows from its shape alone."""
        return self.binary and not self.classes and self.region is None and not self.texts


OutputFormats = Mapping[str, OutputFormat]


@dataclass(frozen=True, slots=True)
class PreparedResponse:
    """Text and headers of responses of one shape, all of whose outputs are binary."""

    text: bytes
    headers: Headers
    outputs: tuple[str, ...]

    def fill(self, result: Result) -> EncodedResponse:
        """The response with the numbers of `result`."""
        blobs = map(getattr, repeat(result), self.outputs)
        try:
            return b"".join((self.text, *blobs)), self.headers
        except TypeError:  # some of it is a view with gaps
            return b"".join((self.text, *(getattr(result, name).tobytes() for name in self.outputs))), self.headers


def prepare_response(manifest: Manifest, request_id: str, outputs: OutputFormats, result: Result) -> PreparedResponse:
    """What responses to requests with these `outputs` and results of this shape have in common."""
    entries = [describe_tensor(name, getattr(result, name), binary=True) for name in outputs]
    text = write_text(manifest, request_id, entries, result)
    size = len(text) + sum(getattr(result, name).nbytes for name in outputs)
    return PreparedResponse(text, [*make_binary_headers(text), (CONTENT_LENGTH, str(size).encode())], tuple(outputs))


def complete_outputs(outputs: OutputFormats, manifest: Manifest, result: Result) -> Result:
    """The result with the risks that a request names, where its plan may have estimated none."""
    if RISK in outputs and isinstance(result, TopK):
        return replace(result, risk=result.complete_risk(manifest.classes))
    return result


def make_binary_headers(text: bytes) -> Headers:
    """Headers of a body that begins with `text`, but for its length."""
    return [(CONTENT_TYPE, BINARY_TYPE.encode()), (JSON_LENGTH, str(len(text)).encode())]


def write_text(manifest: Manifest, request_id: str, entries: list[dict[str, Any]], result: Result) -> bytes:
    """The JSON of a response with the outputs that `entries` describe."""
    content: dict[str, Any] = {"id": request_id} if request_id else {}
    promise = {} if isinstance(result, Scores) else read_promise(manifest, result.normalizer, result.ids.shape[1])
    content |= {
        "model_name": manifest.name,
        "model_version": str(manifest.version),
        "parameters": {"normalizer": result.normalizer} | promise,
        "outputs": entries,
    }
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def read_outputs(content: dict[str, Any], binary: bool, kind: Kind) -> dict[str, OutputFormat]:
    """The outputs that a request of this kind wants, in the order of the response; raises BadInput.

    binary: where an output does not say.
    """
    names = (*OUTPUT_DATATYPES[kind], *MORE_OUTPUTS[kind])
    entries = content.get("outputs")
    if not entries:
        return dict.fromkeys(OUTPUT_DATATYPES[kind], OutputFormat(binary))
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput("outputs must be a list of objects with a name")
    outputs: dict[str, OutputFormat] = {}
    for entry in entries:
        name = entry.get("name")
        if name not in names:
            raise BadInput(f"unexpected inference output '{cut(name)}': known are {', '.join(names)}")
        if name in outputs:
            raise BadInput(f"output '{name}' already exists in request")
        outputs[name] = read_output(entry, binary, kind)
    return outputs


def read_output(entry: dict[str, Any], binary: bool, kind: Kind) -> OutputFormat:
    """How one output is wanted; raises BadInput."""
    name = entry["name"]
    parameters = parse_object(entry, "parameters", f"output '{name}'")
    region, classes = parse_region(parameters, f"output '{name}'"), parameters.get("classification", 0)
    if not is_count(classes):
        raise BadInput(f"classification of '{name}' is {show(classes)}: send a whole number from 0")
    if classes and (kind != "topk" or name != LOGPROBS):
        raise BadInput(f"output '{name}' cannot be classified: ask for the classification of '{LOGPROBS}'")
    if classes and region is not None:
        raise BadInput(f"classification of '{name}' cannot be put into shared memory: leave out one of the two")
    in_binary = read_flag({"binary_data": binary} | parameters, "binary_data")
    return OutputFormat(in_binary, classes, region, texts=name in TEXTS)


def encode_infer(
    manifest: Manifest,
    request_id: str,
    outputs: OutputFormats,
    texts: Mapping[str, ReadTexts],
    memory: SharedRegions | None,
    result: Result,
) -> EncodedResponse:
    """The response's body and headers. texts: what reads the labels and the names of ids, where there are some."""
    result = complete_outputs(outputs, manifest, result)
    entries, blobs = [], []
    for name, output in outputs.items():
        if output.texts:
            entry, blob = encode_names(name, result, output, texts[name], memory)
        elif output.classes:
            entry, blob = encode_classes(result, output, texts.get(LABELS))
        else:
            entry, blob = encode_numbers(name, getattr(result, name), output, memory)
        entries.append(entry)
        blobs.append(blob)
    text = write_text(manifest, request_id, entries, result)
    if not any(output.binary and output.region is None for output in outputs.values()):
        return text, [(CONTENT_TYPE, JSON_TYPE.encode()), make_length_header(text)]
    content = b"".join([text, *blobs])
    return content, [*make_binary_headers(text), make_length_header(content)]


def encode_numbers(
    name: str, values: Array, output: OutputFormat, memory: SharedRegions | None
) -> tuple[dict[str, Any], bytes]:
    """One output's entry and its bytes; in JSON its numbers are flat, and -inf is the least float32."""
    if output.region is not None:
        return write_region(describe_tensor(name, values, binary=False), values.tobytes(), output.region, memory), b""
    entry = describe_tensor(name, values, binary=output.binary)
    if output.binary:
        return entry, values.tobytes()
    flat = np.ascontiguousarray(values).reshape(-1)
    numbers = np.maximum(flat, LEAST_FLOAT32) if name in (LOGPROBS, SCORES) else flat
    return entry | {"data": make_json_list(numbers)}, b""


def write_region(entry: dict[str, Any], content: bytes, region: Region, memory: SharedRegions | None) -> dict[str, Any]:
    """Put an output into shared memory; returns its `entry`, with the place. Raises BadInput where it does not fit."""
    if memory is None:
        raise BadInput("shared memory is not served: start the server with --shared-memory, or send data in the body")
    if len(content) > region.size:
        where = f"{region.size} were given in '{cut(region.name)}'"
        raise BadInput(f"output '{entry['name']}' has {len(content)} bytes and {where}")
    memory.write(region.name, region.offset, content)
    place = {"shared_memory_region": region.name, "shared_memory_byte_size": len(content)}
    return entry | {"parameters": place | ({"shared_memory_offset": region.offset} if region.offset else {})}


def encode_classes(result: Result, output: OutputFormat, read: ReadTexts | None) -> tuple[dict[str, Any], bytes]:
    """The best classes of each row as `value:index` or `value:index:label`, best first. read: labels, if any."""
    assert output.classes <= result.ids.shape[1]
    ids, values = result.ids[:, : output.classes].reshape(-1), result.logprobs[:, : output.classes].reshape(-1)
    labels = [None] * ids.size if read is None else read(ids).tolist()
    texts = [write_class(*each) for each in zip(values.tolist(), ids.tolist(), labels, strict=True)]
    entry: dict[str, Any] = {"name": LOGPROBS, "datatype": TEXT_DATATYPE, "shape": [len(result.ids), output.classes]}
    return encode_texts(entry, texts, output)


def encode_names(
    name: str, result: Result, output: OutputFormat, read: ReadTexts, memory: SharedRegions | None
) -> tuple[dict[str, Any], bytes]:
    """The labels or names of the ids, nothing for an id of -1."""
    entry: dict[str, Any] = {"name": name, "datatype": TEXT_DATATYPE, "shape": list(result.ids.shape)}
    flat = np.ascontiguousarray(result.ids).reshape(-1)
    if output.region is None and not output.binary:
        return entry | {"data": make_json_list(flat, partial(list_names, read))}, b""
    content = join_texts(list_names(read, flat))
    if output.region is not None:
        return write_region(entry, content, output.region, memory), b""
    return entry | {"parameters": {"binary_data_size": len(content)}}, content


def list_names(read: ReadTexts, ids: IdArray) -> list[str]:
    """The texts of `ids` [n], nothing for an id of -1."""
    return [text or "" for text in read(ids).tolist()]


def encode_texts(entry: dict[str, Any], texts: list[str], output: OutputFormat) -> tuple[dict[str, Any], bytes]:
    """The entry of an output of `texts`, in JSON or with the bytes that follow."""
    if not output.binary:
        return entry | {"data": texts}, b""
    content = join_texts(texts)
    return entry | {"parameters": {"binary_data_size": len(content)}}, content


def write_class(value: float, id: int, label: str | None) -> str:
    """One class as text, with the nine digits that tell any two float32 apart."""
    text = f"{value:.9g}:{id}"
    return text if label is None else f"{text}:{label}"


def encode_and_compress(encode: Callable[[Result], EncodedResponse], accept: bytes, result: Result) -> EncodedResponse:
    """What `encode` makes of `result`, compressed where the header Accept-Encoding asks for it and it pays."""
    content, headers = encode(result)
    if len(content) <= MIN_COMPRESSED_BYTES:
        return content, headers
    encoding = choose_encoding(accept.decode("latin-1"))
    if encoding == IDENTITY_ENCODING:
        return content, headers
    content = compress(content, encoding)
    plain = [header for header in headers if header[0] != CONTENT_LENGTH]
    return content, [*plain, (CONTENT_ENCODING, encoding.encode()), VARY, make_length_header(content)]
