"""The Open Inference Protocol's infer request, server side: bytes -> arrays. `answers` is the way back."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shortlist.bundle.manifest import Manifest
from shortlist.core.arrays import Array
from shortlist.core.checks import cut, is_count, parse_object
from shortlist.core.queries import Query, Result, ScoreQuery, TopKQuery
from shortlist.core.results import Labels
from shortlist.errors import BadInput
from shortlist.server.messages.headers import Headers
from shortlist.server.messages.json_fields import flag, parse_json, whole
from shortlist.server.scheduling.tasks import TopKWork, Work
from shortlist.wire.open_inference import (
    ALLOW,
    BAN,
    CONTEXT,
    DATATYPES,
    IDS,
    SharedRegions,
    Tensor,
    parse_tensors,
    split_body,
)

from .v2_response import OUTPUTS, Prepared, Wanted, encode, prepared, wanted_outputs

DEFAULT_K = 5  # generic clients and raw binary requests cannot always say k
INPUTS = {CONTEXT: ("FP32", "FP16", "BF16"), ALLOW: ("INT64",), BAN: ("INT64",), IDS: ("INT64",)}
RESERVED = "triton_"
TEMPLATES = 256  # requests whose text is remembered
LONGEST = 1024  # bytes of a text worth remembering
DIGITS = 6  # of such a length, and then some
MICROSECOND = 1e-6


@dataclass(slots=True)
class Infer:
    """A decoded request. timeout: seconds, 0 for the server's own. priority: lower goes first."""

    id: str
    query: Query
    outputs: dict[str, Wanted]
    timeout: float = 0.0
    priority: int = 0
    work: Work | None = None  # where the query needs no more checks
    template: Template | None = None


@dataclass(slots=True)
class Template:
    """A request that differs from an earlier one in the numbers of its only input alone.

    like: the checked work of one such request; others need no check but that of their numbers.
    """

    first: Infer
    query: TopKQuery
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    size: int
    like: TopKWork | None = None
    known: dict[Any, Prepared] = field(default_factory=dict)

    def filled(self, body: bytes, start: int) -> Infer:
        """The request whose numbers begin at `start`; raises BadInput."""
        query, first = self.query, self.first
        contexts: Array = np.ndarray(self.shape, self.dtype, body, start)
        if start % self.dtype.itemsize:
            contexts = contexts.copy()  # runtimes want aligned numbers
        work = None
        if self.like is None:
            query = replace(query, contexts=contexts)
        else:
            work = self.like.with_rows(contexts)
        return Infer(first.id, query, first.outputs, first.timeout, first.priority, work, self)

    def learn(self, work: Work) -> None:
        """The work of one such request was checked."""
        assert isinstance(work, TopKWork)
        self.like = replace(work, contexts=self.query.contexts)  # not to keep the numbers


class Codec:
    """The requests and answers of one model."""

    def __init__(self, manifest: Manifest, labels: Labels | None = None, memory: SharedRegions | None = None) -> None:
        """labels: [V + 1], for classification. memory: shared regions, where they are served."""
        self.manifest, self.labels, self.memory = manifest, labels, memory
        self.templates: dict[bytes, Template] = {}

    def decode(self, body: bytes, header: str | None) -> Infer:
        """One infer request; raises BadInput.

        header: value of Inference-Header-Content-Length; `0` makes the whole body one float32 context vector.
        """
        known = self.known(body, header) if header is not None else None
        if known is not None:
            return known
        text, binary = split_body(body, header)
        if not text and header is not None:
            return self.raw_request(binary)
        return self.parsed(text, binary)

    def known(self, body: bytes, header: str) -> Infer | None:
        """A request whose text was seen before; None for all others."""
        if not header.isdecimal() or len(header) > DIGITS:
            return None
        length = int(header)
        template = self.templates.get(body[:length]) if length <= LONGEST else None
        return template.filled(body, length) if template is not None and template.size == len(body) - length else None

    def parsed(self, text: memoryview, binary: memoryview) -> Infer:
        """A request whose text was not seen before."""
        content = parse_json(text)
        given = parse_tensors(content.get("inputs"), binary, self.manifest.name, self.memory)
        parameters = parse_object(content, "parameters", "the request")
        check_parameters(parameters)
        scoring = IDS in given
        outputs = wanted_outputs(content, flag(parameters, "binary_data_output"), scoring)
        query = query_of(given, parameters, self.manifest, outputs)
        limits = seconds(parameters), count(parameters, "priority")
        request = Infer(identity(content), query, outputs, *limits)
        if len(text) <= LONGEST:
            self.remember(bytes(text), request, given, len(binary))
        return request

    def remember(self, text: bytes, request: Infer, given: dict[str, Tensor], size: int) -> None:
        """Keep a template, where numbers of `context` are all that the text leaves open."""
        context, query = given.get(CONTEXT), request.query
        if context is None or len(given) > 1 or not isinstance(query, TopKQuery):
            return
        alone = context.raw is not None and len(context.raw) == size and context.datatype != "BF16"
        if alone and all(wanted.plain for wanted in request.outputs.values()):
            if len(self.templates) >= TEMPLATES:
                self.templates.clear()
            query = replace(query, contexts=np.empty((0, 0), np.float32))  # not to keep the body alive
            dtype = DATATYPES[context.datatype]
            self.templates[text] = Template(replace(request, query=query), query, dtype, context.shape, size)

    def raw_request(self, binary: memoryview) -> Infer:
        """The protocol's raw binary request: one context vector, no JSON; every output is binary."""
        tensor = Tensor(CONTEXT, "FP32", (1, self.manifest.dim), binary)
        query = TopKQuery(tensor.to_array(self.manifest.name), min(DEFAULT_K, self.manifest.max_k))
        return Infer("", query, dict.fromkeys(OUTPUTS, Wanted(binary=True)))

    def encode(self, request: Infer, result: Result) -> tuple[bytes, Headers]:
        """The response's body and headers; what is remembered of the request's template is not made again."""
        template = request.template
        if template is None:
            return encode(self.manifest, request.id, request.outputs, result, self.labels, self.memory)
        shape = (result.logprobs.shape, result.normalizer)
        answer = template.known.get(shape)
        if answer is None:
            answer = template.known[shape] = prepared(self.manifest, request.id, request.outputs, result)
        return answer.filled(result)


def metadata(manifest: Manifest, versions: list[int]) -> dict[str, Any]:
    """The protocol's description of a model; `allow`, `ban` and `ids` are optional inputs."""
    inputs = [{"name": CONTEXT, "datatype": "FP32", "shape": [-1, manifest.dim]}]
    inputs += [{"name": name, "datatype": "INT64", "shape": [-1, -1]} for name in (ALLOW, BAN, IDS)]
    outputs = [
        {"name": name, "datatype": datatype, "shape": [-1] if name == "scored" else [-1, -1]}
        for name, datatype in OUTPUTS.items()
    ]
    return {
        "name": manifest.name,
        "versions": [str(version) for version in versions],
        "platform": "onnxruntime_onnx",
        "inputs": inputs,
        "outputs": outputs,
    }


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


def count(parameters: dict[str, Any], name: str) -> int:
    """A parameter that is a whole number from 0, 0 where it is missing; raises BadInput."""
    value: int = parameters.get(name, 0)
    if not is_count(value):
        raise BadInput(f"{name} is {cut(value)}: send a whole number from 0")
    return value


def seconds(parameters: dict[str, Any]) -> float:
    """The parameter `timeout`, which the protocol counts in microseconds."""
    return count(parameters, "timeout") * MICROSECOND


def query_of(
    given: dict[str, Tensor], parameters: dict[str, Any], manifest: Manifest, outputs: dict[str, Wanted]
) -> Query:
    """The question that the inputs ask: log-probabilities of `ids` where they are given, else the top k."""
    values = {name: input_array(tensor, manifest) for name, tensor in given.items()}
    if CONTEXT not in values:
        raise BadInput(f"input '{CONTEXT}' is missing: send FP32 of shape [rows, {manifest.dim}]")
    exact = flag(parameters, "exact")
    if IDS in values:
        if ALLOW in values or BAN in values:
            raise BadInput("input 'ids' asks for log-probabilities, which 'allow' and 'ban' do not change")
        return ScoreQuery(values[CONTEXT], values[IDS], exact)
    k = wanted_k(parameters, manifest, max(wanted.classes for wanted in outputs.values()))
    return TopKQuery(values[CONTEXT], k, values.get(ALLOW), values.get(BAN), exact)


def wanted_k(parameters: dict[str, Any], manifest: Manifest, classes: int) -> int:
    """Parameter k; without it, as many `classes` as are to be classified, or the default."""
    if "k" not in parameters:
        return classes or min(DEFAULT_K, manifest.max_k)
    k = whole(parameters["k"])
    if classes > k:
        raise BadInput(f"classification of {classes} classes wants a k of as many, and k is {k}: leave k out")
    return k


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
    return tensor.to_array(manifest.name)
